// Bench compares what a decision costs: the CPU that attache's ext_proc server spends per request against a plain
// grpc-go server with generated protobuf code that answers every message with a fixed reply (the no-op).
//
// Both run as processes of their own behind the same client, in interleaved rounds, so that a noisy machine is noisy for
// both. Each request is one stream as Envoy opens it: headers, then a BUFFERED chat body. CPU is user + system time of
// the server process; the table shows medians over the rounds. `-max 0.9,0.8,0.8` makes a ratio above
// its bound an error.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

func main() {
	serve := flag.String("serve", "", "internal: run as a server, noop or attache")
	sizes := flag.String("sizes", "8,64,256", "body sizes in KB")
	bounds := flag.String("max", "", "largest ratio allowed per size; empty: none")
	rounds := flag.Int("rounds", 15, "rounds per server and size")
	requests := flag.Int("requests", 3000, "requests per round at 8 KB; fewer for larger bodies")
	streams := flag.Int("streams", 16, "concurrent streams")
	unseen := flag.Bool("unseen", false, "half of every prompt is new, instead of its last kilobyte")
	profile := flag.String("profile", "", "write a CPU profile of attache's server to this file")
	flag.Parse()
	if *serve != "" {
		if err := runServer(*serve, *profile); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := compare(*sizes, *bounds, *rounds, *requests, *streams, *unseen, *profile); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func compare(sizes, bounds string, rounds, requests, streams int, unseen bool, profile string) error {
	var limits []float64
	for text := range strings.SplitSeq(bounds, ",") {
		if limit, err := strconv.ParseFloat(text, 64); err == nil {
			limits = append(limits, limit)
		}
	}
	fmt.Printf("CPU of the server per request, median of %d interleaved rounds, %d streams\n", rounds, streams)
	fmt.Printf("%8s %14s %14s %8s\n", "body", "no-op", "attache", "ratio")
	var failed error
	for i, text := range strings.Split(sizes, ",") {
		kb, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-sizes: %w", err)
		}
		n := max(requests*8/max(kb, 8), requests/8)
		r, err := measure(kb<<10, rounds, n, streams, unseen, profile)
		if err != nil {
			return err
		}
		fmt.Printf("%5d KB %11.1f us %11.1f us %8.2f\n", kb, us(r.noop), us(r.ours), r.ratio)
		if i < len(limits) && r.ratio > limits[i] {
			failed = errors.Join(failed, fmt.Errorf("at %d KB the ratio is %.2f, allowed are %.2f", kb, r.ratio, limits[i]))
		}
	}
	return failed
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// result are medians over the rounds: CPU per request of each server, and the ratio within one round, which a noisy
// machine disturbs least.
type result struct {
	noop, ours time.Duration
	ratio      float64
}

// measure runs both servers side by side.
func measure(size, rounds, requests, streams int, unseen bool, profile string) (result, error) {
	a, err := start("noop", "")
	if err != nil {
		return result{}, err
	}
	defer a.stop()
	b, err := start("attache", profile)
	if err != nil {
		return result{}, err
	}
	defer b.stop()
	var costs [2][]time.Duration
	var ratios []float64
	for round := range rounds + 1 {
		var cost [2]time.Duration
		for i, server := range []*server{a, b} {
			if cost[i], err = server.load(size, requests, streams, round, unseen); err != nil {
				return result{}, err
			}
		}
		if round == 0 { // it warms up
			continue
		}
		for i := range cost {
			costs[i] = append(costs[i], cost[i])
		}
		ratios = append(ratios, float64(cost[1])/float64(cost[0]))
	}
	return result{median(costs[0]), median(costs[1]), median(ratios)}, nil
}

func median[T cmp.Ordered](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}

// server is one of the two processes.
type server struct {
	cmd  *exec.Cmd
	conn *grpc.ClientConn
}

func start(name, profile string) (*server, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, "-serve", name, "-profile", profile)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the %s server did not start: %w", name, err)
	}
	conn, err := grpc.NewClient(strings.TrimSpace(address), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
	return &server{cmd, conn}, err
}

func (s *server) stop() {
	_ = s.conn.Close()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}

// load sends requests over concurrent streams and returns the server's CPU per request.
func (s *server) load(size, requests, streams, round int, unseen bool) (time.Duration, error) {
	before, err := cpu(s.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, streams)
	for range streams {
		wg.Go(func() {
			for {
				i := int(next.Add(1))
				if i > requests {
					return
				}
				conversation, turn := i%conversations, round*requests+i
				if unseen {
					conversation = turn
				}
				if err := s.request(chatBody(size, conversation, turn)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
	}
	after, err := cpu(s.cmd.Process.Pid)
	return (after - before) / time.Duration(requests), err
}

// conversations is how many run side by side: each request is the next turn of one.
const conversations = 16

var processDesc = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// request is one stream as Envoy opens it for a BUFFERED request.
func (s *server) request(body []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	stream, err := s.conn.NewStream(ctx, processDesc, "/envoy.service.ext_proc.v3.ExternalProcessor/Process")
	if err != nil {
		return err
	}
	var reply []byte
	for _, message := range [][]byte{headersMessage(), body} {
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
		if err := stream.RecvMsg(&reply); err != nil {
			return err
		}
		if len(reply) == 0 {
			return errors.New("empty reply")
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := stream.RecvMsg(&reply); !errors.Is(err, io.EOF) {
		return fmt.Errorf("stream ended with %w", err)
	}
	return nil
}

// bytesCodec sends what it is given: the client's own cost does not matter, but should not crowd out the servers.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil //nolint:forcetypeassert // only request calls it
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize() //nolint:forcetypeassert // only request calls it
	return nil
}

// cpu is the user and system time of a process so far, from the scheduler's account in nanoseconds
// (/proc/pid/task/*/schedstat, first field). Go's threads do not end under load, so none is missed.
func cpu(pid int) (time.Duration, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, task := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
		if err != nil {
			continue // the thread ended
		}
		ns, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(ns, 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(n)
	}
	return total, nil
}
