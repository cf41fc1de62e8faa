// Command date prints the date. Built with CGO_ENABLED=0 it is a static program:
// no libc, no dynamic linker, nothing that LD_PRELOAD could reach.
package main

import (
	"fmt"
	"time"
)

func main() {
	fmt.Println(time.Now().UTC().Format(time.RFC3339))
}
