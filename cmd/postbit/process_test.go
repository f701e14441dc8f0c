package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/certtest"
	"postbit/internal/clock"
	"postbit/internal/logtest"
	"postbit/internal/minimongo/mongotest"
)

// TestMainProcess is postbit itself where a test starts this binary once more, as a process of its own.
func TestMainProcess(t *testing.T) {
	if os.Getenv("POSTBIT_TEST_AS_PROCESS") == "" {
		t.Skip("runs as a process of other tests")
	}
	for i, arg := range os.Args {
		if arg == "--" {
			os.Args = append([]string{"postbit"}, os.Args[i+1:]...)
			break
		}
	}
	main()
}

// process starts `postbit args…` with the environment of the test.
func (s *shell) process(args ...string) (*exec.Cmd, *logtest.Buffer) {
	s.Helper()
	talk := &logtest.Buffer{}
	cmd := exec.Command(os.Args[0], append([]string{"-test.run=^TestMainProcess$", "--"}, args...)...)
	cmd.Env = append(os.Environ(), "POSTBIT_TEST_AS_PROCESS=1")
	cmd.Stdout, cmd.Stderr = talk, talk
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd, talk
}

const marker = "Hunter2-marker" // in every secret

// encrypted puts TLS in front of a server.
func encrypted(t *testing.T, conf *tls.Config, to string) (addr string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, c, s)
			mu.Unlock()
			for _, p := range [][2]net.Conn{{c, s}, {s, c}} {
				wg.Go(func() {
					_, _ = io.Copy(p[0], p[1])
					_ = p[0].Close()
					_ = p[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// postOffice takes mails from whoever knows the password.
type postOffice struct {
	password string
	taken    func(n int)
	mu       sync.Mutex
	got      map[string]int
	n        int
}

func (o *postOffice) NewSession(*smtp.Conn) (smtp.Session, error) { return &visit{o: o}, nil }

type visit struct {
	o  *postOffice
	in bool
	to string
}

func (v *visit) AuthMechanisms() []string { return []string{sasl.Plain} }
func (v *visit) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, _, password string) error {
		if password != v.o.password {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "not with " + password}
		}
		v.in = true
		return nil
	}), nil
}

func (v *visit) Mail(string, *smtp.MailOptions) error {
	if !v.in {
		return smtp.ErrAuthRequired
	}
	return nil
}
func (v *visit) Rcpt(to string, _ *smtp.RcptOptions) error { v.to = to; return nil }
func (v *visit) Data(r io.Reader) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	v.o.mu.Lock()
	v.o.got[v.to]++
	v.o.n++
	n := v.o.n
	v.o.mu.Unlock()
	if v.o.taken != nil {
		v.o.taken(n)
	}
	return nil
}
func (v *visit) Reset()        {}
func (v *visit) Logout() error { return nil }

// A worker process reaches MongoDB and Redis over TLS, Redis and SMTP with passwords; SIGTERM in mid-run ends it within its grace, leaves
// nobody unconfirmed and no batch owned; another process finishes the run; and no secret stands in what any of them, or any command, prints.
func TestAWorkerProcessIsToldToStop(t *testing.T) {
	s := newShell(t)
	certificate := certtest.New(t, "127.0.0.1", "localhost")
	conf, ca := certificate.Server, certificate.CA
	srv, db := mongotest.Server(t)
	redis, err := miniredis.RunTLS(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	redis.RequireUserAuth("app", marker)
	reached := make(chan struct{})
	office := &postOffice{password: marker, got: map[string]int{}, taken: func(n int) {
		if n == 50 {
			close(reached)
		}
	}}
	mx := smtp.NewServer(office)
	mx.Domain, mx.AllowInsecureAuth, mx.ErrorLog = "localhost", true, log.New(io.Discard, "", 0)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = mx.Serve(l) })
	t.Cleanup(func() { _ = mx.Close(); serving.Wait() })

	s.clk = clock.New() // the processes have clocks of their own
	mongoAddr := strings.TrimPrefix(strings.SplitN(strings.TrimPrefix(srv.URI(), "mongodb://"), "/", 2)[0], "mongodb://")
	t.Setenv("SSL_CERT_FILE", ca) // where Go looks for authorities
	secret := base64.StdEncoding.EncodeToString([]byte(marker + marker + marker))
	for name, value := range map[string]string{
		"MONGO_URI": "mongodb://" + encrypted(t, conf, mongoAddr) + "/" + db.Name() + "?directConnection=true&tls=true&tlsCAFile=" + ca,
		"REDIS_URI": "rediss://app:" + marker + "@" + redis.Addr(), "SMTP_URL": "smtp://app:" + marker + "@" + l.Addr().String() + "?auth=plain",
		"PUBLIC_URL": "https://mail.example.com", "SECRET": "k1:" + secret, "DATA_DIR": "data", "ADMIN_TOKEN": marker + "-of-the-admin-side",
	} {
		t.Setenv("POSTBIT_"+name, value)
	}
	const users = 600
	docs := make([]any, users)
	for i := range docs {
		docs[i] = bson.M{"_id": i, "email": fmt.Sprintf("u%d@d%d.example", i, i%5), "name": "U", "plan": "free"}
	}
	if _, err := db.Collection("users").InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	s.write("templates/winback.html", winbackHTML)
	s.write("campaigns/winback.yaml", "name: winback\ntemplate: winback\naudience: { plan: free }\n")
	var said bytes.Buffer
	command := func(args ...string) {
		t.Helper()
		r := s.run(args...)
		said.WriteString(r.out + r.err)
		if r.code != 0 && args[0] != "doctor" {
			t.Fatalf("postbit %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.err)
		}
	}
	command("templates", "push", "templates")
	command("campaigns", "apply", "campaigns")
	command("campaigns", "run", "winback")
	command("doctor")

	serve := []string{"serve", "--roles", "scheduler,worker", "--grace", "20s", "--metrics-listen", ""}
	first, talk := s.process(serve...)
	select {
	case <-reached:
	case <-time.After(60 * time.Second):
		t.Fatalf("no mails:\n%s", talk)
	}
	if argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", first.Process.Pid)); err == nil && bytes.Contains(argv, []byte(marker)) {
		t.Errorf("the process list shows a secret: %q", argv)
	}
	told := time.Now()
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, talk)
	}
	if took := time.Since(told); took > 20*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	store, batches := campaign.NewStore(db), campaign.NewBatches(db, s.clk)
	latest := func() *campaign.Run {
		r, err := store.LatestRun(t.Context(), "winback")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	run := latest()
	p, err := batches.Progress(t.Context(), run)
	if err != nil || p.Counts.Unconfirmed != 0 {
		t.Errorf("after the stop: %+v %v", p, err)
	}
	owned, err := db.Collection(campaign.BatchCollection(run.Slot)).CountDocuments(t.Context(), bson.M{"$or": bson.A{bson.M{"owner": bson.M{"$exists": true}}, bson.M{"open": bson.M{"$exists": true, "$ne": bson.A{}}}}})
	if err != nil || owned != 0 {
		t.Errorf("%d batches are owned or have an open wave, %v", owned, err)
	}
	second, more := s.process(serve...)
	s.await("the run ends", func() bool { return latest().State.Finished() })
	_ = second.Process.Signal(syscall.SIGTERM)
	if err := second.Wait(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, more)
	}
	if c := latest().Counts; latest().State != campaign.RunDone || c.Sent != users || c.Unconfirmed != 0 {
		t.Errorf("%s %+v", latest().State, c)
	}
	office.mu.Lock()
	for to, n := range office.got {
		if n != 1 {
			t.Errorf("%s has %d copies", to, n)
		}
	}
	office.mu.Unlock()
	command("campaigns", "show", "winback")
	command("report", "winback")

	// And where the passwords are wrong: what servers and drivers say of them stays inside.
	t.Setenv("POSTBIT_SMTP_URL", "smtp://app:"+marker+"-x@"+l.Addr().String()+"?auth=plain")
	for name, value := range map[string]string{
		"POSTBIT_REDIS_URI": "rediss://app:" + marker + "-x@" + redis.Addr(),
		"POSTBIT_MONGO_URI": "mongodb://app:" + marker + "@" + mongoAddr + "/x?directConnection=true&serverSelectionTimeoutMS=2000",
	} {
		old := os.Getenv(name)
		t.Setenv(name, value)
		for _, args := range [][]string{{"serve", "--roles", "worker"}, {"doctor"}, {"send", "winback", "int:1"}} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			var out logtest.Buffer
			if code := (program{in: strings.NewReader(""), out: &out, err: &out, clk: s.clk}).run(ctx, args...); code == 0 {
				t.Errorf("%s=%s postbit %s succeeded", name, value, strings.Join(args, " "))
			}
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("%s: postbit %s does not end", name, strings.Join(args, " "))
			}
			cancel()
			said.WriteString(out.String())
		}
		t.Setenv(name, old)
	}
	all := said.String() + talk.String() + more.String()
	for _, secret := range []string{marker, secret} {
		if i := strings.Index(all, secret); i >= 0 {
			t.Errorf("a secret was printed: …%s…", all[max(0, i-200):min(len(all), i+60)])
		}
	}
}
