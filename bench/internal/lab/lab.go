// Package lab starts and stops what a measurement needs: servers on free loopback ports, in a folder of their own, all
// ended with it.
package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Lab is a folder, and the processes that were started in it.
type Lab struct {
	Dir string
	Env []string // for every process started, beside the caller's environment

	mu    sync.Mutex
	procs []*Proc
}

// Proc is a running program.
type Proc struct {
	Name string
	Log  string // the file that holds what it printed
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// New makes a lab in a fresh temporary folder.
func New(prefix string) (*Lab, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	return &Lab{Dir: dir}, nil
}

// Close ends every process, newest first: asked, then killed after ten seconds. It removes the folder unless keep is set.
func (l *Lab) Close(keep bool) {
	l.mu.Lock()
	procs := l.procs
	l.procs = nil
	l.mu.Unlock()
	for i := len(procs) - 1; i >= 0; i-- {
		procs[i].Stop(10 * time.Second)
	}
	if !keep {
		_ = os.RemoveAll(l.Dir)
	}
}

// Port returns a free TCP port of the loopback interface.
func Port() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// Build compiles a package of this module into the lab and returns the program's path.
func (l *Lab) Build(ctx context.Context, pkg string) (string, error) {
	out := filepath.Join(l.Dir, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, pkg)
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, b)
	}
	return out, nil
}

// Start runs a program in the background.
func (l *Lab) Start(name, prog string, args ...string) (*Proc, error) {
	logName := filepath.Join(l.Dir, name+".log")
	logFile, err := os.OpenFile(logName, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(prog, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = l.Dir, logFile, logFile
	cmd.Env = append(os.Environ(), l.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		logFile.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Proc{Name: name, Log: logName, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		logFile.Close()
		close(p.done)
	}()
	l.mu.Lock()
	l.procs = append(l.procs, p)
	l.mu.Unlock()
	return p, nil
}

// Again runs a program that has ended once more, with the same arguments and the same log.
func (l *Lab) Again(p *Proc) (*Proc, error) {
	select {
	case <-p.done:
	default:
		return nil, fmt.Errorf("%s is still running", p.Name)
	}
	return l.Start(p.Name, p.cmd.Path, p.cmd.Args[1:]...)
}

// Run runs a program to its end and returns its standard output; what it says on standard error is in the error.
func (l *Lab) Run(ctx context.Context, dir, prog string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, prog, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), l.Env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(prog), strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes(), nil
}

// Signal sends a signal to the program.
func (p *Proc) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// PID is the program's process id.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the program has ended.
func (p *Proc) Exited() <-chan struct{} { return p.done }

// Stop asks the program to end and kills it after grace.
func (p *Proc) Stop(grace time.Duration) {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		_ = p.Signal(syscall.SIGKILL)
		<-p.done
	}
}

// AwaitTCP waits until something listens at addr, or p has ended.
func (p *Proc) AwaitTCP(ctx context.Context, addr string) error {
	for {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen on %s: %w\n%s", p.Name, addr, ctx.Err(), p.Tail(20))
		case <-p.done:
			return fmt.Errorf("%s ended: %w\n%s", p.Name, errors.Join(p.err, err), p.Tail(20))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Tail is the end of what the program has printed.
func (p *Proc) Tail(lines int) string {
	f, err := os.Open(p.Log)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > 16<<10 {
		_, _ = f.Seek(-16<<10, io.SeekEnd)
	}
	b, _ := io.ReadAll(f)
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// PeakRSS is the largest resident set of the program so far, in bytes; 0 where the system does not tell.
func (p *Proc) PeakRSS() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	return 0
}

// CPU is the processor time that the program has used so far; 0 where the system does not tell.
func (p *Proc) CPU() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the name in brackets may hold anything
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	var user, system int64
	_, _ = fmt.Sscan(f[11]+" "+f[12], &user, &system)
	return time.Duration(user+system) * (time.Second / 100) // clock ticks are 10 ms on every Linux that Go runs on
}
