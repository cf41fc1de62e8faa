// A thousand goroutines sleep at random for as many seconds as the argument says at the most; a ticker ticks beside them.
package main

import (
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"time"
)

func main() {
	most, _ := strconv.Atoi(os.Args[1])
	var all sync.WaitGroup
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for i := 0; i < 1000; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			time.Sleep(time.Duration(rand.Int63n(int64(most) * int64(time.Second))))
		}()
	}
	all.Wait()
	fmt.Println("done")
}
