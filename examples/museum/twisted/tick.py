from twisted.internet import reactor, task

task.LoopingCall(print, "tick").start(0.2)
reactor.run()
