// Starts as many goroutines as the argument says. Each sleeps a second longer than the one before.
package main

import (
	"os"
	"strconv"
	"sync"
	"time"
)

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	var all sync.WaitGroup
	for i := 1; i <= count; i++ {
		all.Add(1)
		go func(seconds int) {
			defer all.Done()
			time.Sleep(time.Duration(seconds) * time.Second)
		}(i)
	}
	all.Wait()
}
