// Tickers, timers and a context with a deadline, each in a goroutine of its own.
package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

func tick(name string, period time.Duration, begun time.Time) {
	for n := range time.NewTicker(period).C {
		turn := n.Sub(begun).Round(period) / period
		late := time.Since(begun.Add(turn * period))
		fmt.Printf("{\"ev\":\"tick\",\"thread\":\"%s\",\"n\":%d,\"late\":%f}\n", name, turn, late.Seconds())
	}
}

func main() {
	begun := time.Now()
	go tick("a", 50*time.Millisecond, begun)
	go tick("b", 70*time.Millisecond, begun)
	timer := time.NewTimer(3 * time.Second)
	limited, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	<-limited.Done()
	<-timer.C
	fmt.Printf("{\"ev\":\"empty\",\"after\":%f}\n", time.Since(begun).Seconds())
	time.Sleep(time.Second)
	os.Exit(0)
}
