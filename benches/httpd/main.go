// Command httpd is both ends of the HTTP benchmark.
//
//	httpd serve             serves on a free port, prints it, ends when stdin closes
//	httpd load ADDRESS CLIENTS SECONDS
//	                        keep-alive clients as fast as they can; prints requests/s
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		err = serve()
	case len(os.Args) == 5 && os.Args[1] == "load":
		err = load(os.Args[2], os.Args[3], os.Args[4])
	default:
		err = fmt.Errorf("usage: httpd serve | httpd load ADDRESS CLIENTS SECONDS")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("address", listener.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	answer := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok\n") }
	// Timeouts as a service on the network has them: the server arms and disarms timers.
	server := &http.Server{
		Handler:      http.HandlerFunc(answer),
		ReadTimeout:  10 * time.Second,
		WriteTimeout: 10 * time.Second,
	}
	return server.Serve(listener)
}

func load(address, clientsText, secondsText string) error {
	clients, err := strconv.Atoi(clientsText)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseFloat(secondsText, 64)
	if err != nil {
		return err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	counts := make([]int, clients)
	errors := make([]error, clients)
	start := time.Now()
	end := start.Add(time.Duration(seconds * float64(time.Second)))
	var running sync.WaitGroup
	for i := range counts {
		running.Add(1)
		go func(i int) {
			defer running.Done()
			for time.Now().Before(end) && errors[i] == nil {
				errors[i] = get(client, "http://"+address)
				counts[i]++
			}
		}(i)
	}
	running.Wait()
	total := 0
	for i, count := range counts {
		if errors[i] != nil {
			return errors[i]
		}
		total += count
	}
	fmt.Printf("rate %.1f\n", float64(total)/time.Since(start).Seconds())
	return nil
}

func get(client *http.Client, url string) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
