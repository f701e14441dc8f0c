package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/campaign"
	"postbit/internal/certtest"
	"postbit/internal/clock"
	"postbit/internal/logtest"
)

// startServer starts a server and waits until it listens on a port of this machine. stop ends it and waits for that.
func startServer(t *testing.T, port, stdin, name string, args ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command(name, args...)
	var said logtest.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { _ = cmd.Wait(); close(gone) }()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-gone
	})
	t.Cleanup(stop)
	for {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
			return stop
		}
		select {
		case <-gone:
			t.Fatalf("%s ended:\n%s", name, said.String())
		case <-t.Context().Done():
			t.Fatalf("%s does not listen:\n%s", name, said.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// securedMongo is an independent server of MongoDB's protocol that asks for TLS and, by SCRAM-SHA-256, for a password.
func securedMongo(t *testing.T, dir, cert, key, user, password string) (port string) {
	t.Helper()
	port = freePort(t)
	args := []string{"--host", "127.0.0.1", "--port", port, "--storage-path", filepath.Join(dir, "mongo"), "--standalone", "--log-level", "WARNING"}
	stop := startServer(t, port, "", "secantusd-py", args...)
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:" + port + "/?directConnection=true"))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "createUser", Value: user}, {Key: "pwd", Value: password}, {Key: "roles", Value: bson.A{"root"}}}).Err(); err != nil {
		t.Fatal(err)
	}
	_ = client.Disconnect(context.Background())
	stop()
	startServer(t, port, "", "secantusd-py", append(args, "--auth", "--tls-cert-file", cert, "--tls-key-file", key)...)
	return port
}

// A run through a real redis-server and an independent server of MongoDB's protocol, both with TLS by an authority of their own and with
// passwords; and what is said where one of these is wrong, in which no password stands.
func TestPasswordsAndTLSOnRealServers(t *testing.T) {
	if os.Getenv("POSTBIT_TEST_SECURED") == "" {
		t.Skip("needs redis-server and secantusd-py; set POSTBIT_TEST_SECURED=1, as .ci/run does")
	}
	s := newShell(t)
	s.clk = clock.New() // the servers have clocks of their own
	dir := t.TempDir()
	certificate := certtest.New(t, "localhost") // and of no address
	ca, cert, key := certificate.CA, certificate.Cert, certificate.Key
	redisPort := freePort(t)
	startServer(t, redisPort, fmt.Sprintf("port 0\ntls-port %s\nbind 127.0.0.1\ntls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\ntls-auth-clients no\n"+
		"requirepass %s-of-all\nuser app on >%s ~* &* +@all\nsave \"\"\nappendonly no\ndir %s\n", redisPort, cert, key, ca, marker, marker, dir), "redis-server", "-")
	mongoPort := securedMongo(t, dir, cert, key, "app", marker)

	office := &postOffice{password: marker, got: map[string]int{}}
	mx := smtp.NewServer(office)
	mx.Domain, mx.AllowInsecureAuth, mx.ErrorLog = "localhost", true, log.New(io.Discard, "", 0)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = mx.Serve(l) })
	t.Cleanup(func() { _ = mx.Close(); serving.Wait() })

	secret := base64.StdEncoding.EncodeToString([]byte(marker + marker + marker))
	mongoURI := "mongodb://app:" + marker + "@localhost:" + mongoPort + "/shop?directConnection=true&authSource=admin&serverSelectionTimeoutMS=10000&tls=true&tlsCAFile=" + ca
	redisURI := "rediss://app:" + marker + "@localhost:" + redisPort + "?ca=" + ca
	for name, value := range map[string]string{
		"MONGO_URI": mongoURI, "REDIS_URI": redisURI, "SMTP_URL": "smtp://app:" + marker + "@" + l.Addr().String() + "?auth=plain",
		"PUBLIC_URL": "https://mail.example.com", "SECRET": "k1:" + secret, "DATA_DIR": "data", "ADMIN_TOKEN": marker + "-of-the-admin-side",
		"LOG_LEVEL": "debug", // which says the most
	} {
		t.Setenv("POSTBIT_"+name, value)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(mongoURI))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	db := client.Database("shop")
	const users = 40
	docs := make([]any, users)
	for i := range docs {
		docs[i] = bson.M{"_id": i, "email": fmt.Sprintf("u%d@d%d.example", i, i%5), "name": "U", "plan": "free"}
	}
	if _, err := db.Collection("users").InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	s.write("templates/winback.html", winbackHTML)
	s.write("campaigns/winback.yaml", "name: winback\ntemplate: winback\naudience: { plan: free }\n")
	var said strings.Builder
	for _, args := range [][]string{{"templates", "push", "templates"}, {"campaigns", "apply", "campaigns"}, {"campaigns", "run", "winback"}, {"doctor"}} {
		r := s.run(args...)
		said.WriteString(r.out + r.err)
		if r.code != 0 && args[0] != "doctor" {
			t.Fatalf("postbit %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.err)
		}
	}
	process, talk := s.process("serve", "--roles", "scheduler,worker", "--metrics-listen", "")
	store := campaign.NewStore(db)
	var run *campaign.Run
	s.await("the run ends", func() bool {
		if run, err = store.LatestRun(t.Context(), "winback"); err != nil {
			t.Fatal(err)
		}
		return run.State.Finished()
	})
	if argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", process.Process.Pid)); err == nil && strings.Contains(string(argv), marker) {
		t.Errorf("the process list shows a secret: %q", argv)
	}
	_ = process.Process.Signal(syscall.SIGTERM)
	if err := process.Wait(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, talk)
	}
	if run.State != campaign.RunDone || run.Counts.Sent != users {
		t.Errorf("%s %+v", run.State, run.Counts)
	}
	said.WriteString(talk.String())

	t.Setenv("POSTBIT_REDIS_URI", "rediss://:"+marker+"-of-all@localhost:"+redisPort+"?ca="+ca) // requirepass: a password without a user
	if r := s.run("doctor"); !strings.Contains(r.out, "answers; 0 tasks") || strings.Contains(r.out+r.err, marker) {
		t.Errorf("with the password of all: %s%s", r.out, r.err)
	}
	t.Setenv("POSTBIT_REDIS_URI", redisURI)

	change := func(uri, old, new string) string {
		if !strings.Contains(uri, old) {
			t.Fatalf("%s has no %s", uri, old)
		}
		return strings.Replace(uri, old, new, 1)
	}
	for _, c := range []struct {
		name, setting, uri string
		want               []string // all of them stand in what is said
	}{
		{"Redis, a wrong password", "REDIS_URI", change(redisURI, marker, marker+"-x"), []string{"WRONGPASS"}},
		{"Redis, no password", "REDIS_URI", change(redisURI, "app:"+marker+"@", ""), []string{"NOAUTH"}},
		{"Redis, the authority is not known", "REDIS_URI", change(redisURI, "?ca="+ca, ""), []string{"unknown authority"}},
		{"Redis, the host has another name", "REDIS_URI", change(redisURI, "localhost", "127.0.0.1"), []string{"certificate", "127.0.0.1"}},
		{"Redis, no TLS", "REDIS_URI", change(change(redisURI, "rediss:", "redis:"), "?ca="+ca, ""), []string{"rediss://"}},
		{"MongoDB, a wrong password", "MONGO_URI", change(mongoURI, marker, marker+"-x"), []string{"POSTBIT_MONGO_URI", "authentication failed"}},
		{"MongoDB, no password", "MONGO_URI", change(mongoURI, "app:"+marker+"@", ""), []string{"authentication"}},
		{"MongoDB, the authority is not known", "MONGO_URI", change(mongoURI, "&tlsCAFile="+ca, ""), []string{"unknown authority"}},
		{"MongoDB, the host has another name", "MONGO_URI", change(mongoURI, "localhost", "127.0.0.1"), []string{"certificate", "127.0.0.1"}},
		{"MongoDB, no TLS", "MONGO_URI", change(mongoURI, "&tls=true&tlsCAFile="+ca, ""), []string{"POSTBIT_MONGO_URI"}},
		{"MongoDB, no such file of an authority", "MONGO_URI", change(mongoURI, ca, ca+"-x"), []string{"ca.pem-x", "no such file"}},
		{"Redis, no such file of an authority", "REDIS_URI", change(redisURI, ca, ca+"-x"), []string{"POSTBIT_REDIS_URI", "ca.pem-x", "no such file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("POSTBIT_"+c.setting, strings.Replace(c.uri, "TimeoutMS=10000", "TimeoutMS=2000", 1)) // it never comes
			for _, args := range [][]string{{"serve", "--roles", "worker", "--metrics-listen", ""}, {"doctor"}} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				var out logtest.Buffer
				code := program{in: strings.NewReader(""), out: &out, err: &out, clk: s.clk}.run(ctx, args...)
				if code == 0 || ctx.Err() != nil {
					t.Errorf("postbit %s: exit code %d, %v", args[0], code, ctx.Err())
				}
				cancel()
				for _, want := range c.want {
					if !strings.Contains(out.String(), want) {
						t.Errorf("postbit %s: %q is missing in\n%s", args[0], want, out.String())
					}
				}
				said.WriteString(out.String())
			}
		})
	}
	for _, secret := range []string{marker, secret} {
		if i := strings.Index(said.String(), secret); i >= 0 {
			t.Errorf("a secret was printed: …%s…", said.String()[max(0, i-200):min(said.Len(), i+60)])
		}
	}
}
