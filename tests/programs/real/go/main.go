// Go's own ways to spend time, in a static binary. Argument: nominal duration in nanoseconds.
// Lines as lt.h describes them. With the argument "storm": execs beside busy goroutines.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

var nominal time.Duration

func check(ok bool, what string) {
	if !ok {
		fmt.Fprintln(os.Stderr, "broken:", what)
		os.Exit(97)
	}
}

func item(name string, call func()) {
	fmt.Printf("{\"ev\":\"ready\",\"case\":%q}\n", name)
	start := time.Now()
	call()
	fmt.Printf("{\"ev\":\"done\",\"case\":%q,\"elapsed\":%.9f,\"expect\":%.9f}\n", name,
		time.Since(start).Seconds(), nominal.Seconds())
}

func ticker() {
	t := time.NewTicker(nominal / 5)
	defer t.Stop()
	for i := 0; i < 5; i++ {
		<-t.C
	}
}

func deadline() {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(err == nil, "listen")
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(nominal))
	_, err = conn.Read(make([]byte, 8))
	ne, ok := err.(net.Error)
	check(ok && ne.Timeout(), "deadline")
}

func contextTimeout() {
	ctx, cancel := context.WithTimeout(context.Background(), nominal)
	defer cancel()
	<-ctx.Done()
}

func execTimeout() {
	ctx, cancel := context.WithTimeout(context.Background(), nominal)
	defer cancel()
	check(exec.CommandContext(ctx, "sleep", "1000").Run() != nil, "exec was not ended")
}

func execSleep() {
	secs := strconv.FormatFloat(nominal.Seconds(), 'f', 6, 64)
	check(exec.Command("sleep", secs).Run() == nil, "exec sleep")
}

func goroutines() {
	var wg sync.WaitGroup
	for i := 0; i < 5000; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			time.Sleep(nominal)
		}()
	}
	wg.Wait()
}

// storm runs goroutines that are preempted all the time (by SIGURG) beside others that exec.
func storm() {
	stop := make(chan struct{})
	for i := 0; i < 4; i++ {
		go func() {
			for n := 0; ; n++ {
				if n%1000000 == 0 {
					select {
					case <-stop:
						return
					default:
					}
				}
			}
		}()
	}
	var wg sync.WaitGroup
	for i := 0; i < 4; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := 0; n < 20; n++ {
				out, err := exec.Command("date", "+%Y").CombinedOutput()
				check(err == nil, "exec")
				check(len(out) == 5, "output of date")
			}
		}()
	}
	wg.Wait()
	close(stop)
	fmt.Println("{\"ev\":\"storm\",\"execs\":80}")
}

func main() {
	if os.Args[1] == "storm" {
		storm()
		return
	}
	ns, err := strconv.ParseInt(os.Args[1], 10, 64)
	check(err == nil, "argument")
	nominal = time.Duration(ns)
	item("Sleep", func() { time.Sleep(nominal) })
	item("After", func() { <-time.After(nominal) })
	item("Ticker", ticker)
	item("Context", contextTimeout)
	item("ReadDeadline", deadline)
	item("CommandContext", execTimeout)
	item("Command-sleep", execSleep)
	item("goroutines", goroutines)
	fmt.Printf("{\"ev\":\"year\",\"year\":%d}\n", time.Now().UTC().Year())
	fmt.Println("{\"ev\":\"end\"}")
}
