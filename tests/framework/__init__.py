"""Foundation of the black-box tests: building programs, running them, judging their output.

- ``build``: the test programs, compiled once for each content.
- ``running``: a program and the lines it prints, natively (`Native`) or in virtual time
  (`Inside`), with the verbs that change its time.
- ``lorentz``: the command line under test.
- ``catalogue``: the cases of the wait programs and what is known of each.
- ``oracle``: how long something may take, and whether two runs are alike.
- ``needs``: features and tools a test cannot do without.
"""
