package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Database starts a server of the MongoDB protocol, as Mongo does, builds postbit where that is the server, and connects to it.
func (l *Lab) Database(ctx context.Context, prog string) (*Proc, *mongo.Client, error) {
	postbit := ""
	if prog == "minimongo" {
		var err error
		if postbit, err = l.Build(ctx, "./cmd/postbit"); err != nil {
			return nil, nil, err
		}
	}
	server, uri, err := l.Mongo(ctx, prog, postbit, false)
	if err != nil {
		return nil, nil, err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	return server, client, err
}

// Mongo starts a server of the MongoDB protocol: prog is secantusd-rs or secantusd-py, by name or path, or "minimongo" for the
// embedded store of the postbit program. It returns the URI.
func (l *Lab) Mongo(ctx context.Context, prog, postbit string, sync bool) (*Proc, string, error) {
	port, err := Port()
	if err != nil {
		return nil, "", err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	dir := filepath.Join(l.Dir, "mongo")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	args := []string{"--host", "127.0.0.1", "--port", fmt.Sprint(port), "--storage-path", dir, "--log-level", "WARNING", "--standalone"}
	if sync {
		args = append(args, "--sync-on-commit")
	}
	if prog == "minimongo" {
		prog, args = postbit, []string{"minimongo", "--listen", addr, "--dir", dir}
	}
	path, err := exec.LookPath(prog)
	if err != nil {
		return nil, "", fmt.Errorf("%s is not installed (bench/README.md says how to get it): %w", prog, err)
	}
	p, err := l.Start("mongo", path, args...)
	if err != nil {
		return nil, "", err
	}
	return p, "mongodb://" + addr + "/?directConnection=true", p.AwaitTCP(ctx, addr)
}

// Redis starts a redis-server without persistence and returns its URI.
func (l *Lab) Redis(ctx context.Context) (*Proc, string, error) {
	port, err := Port()
	if err != nil {
		return nil, "", err
	}
	p, err := l.Start("redis", "redis-server", "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", l.Dir)
	if err != nil {
		return nil, "", err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	return p, "redis://" + addr + "/0", p.AwaitTCP(ctx, addr)
}

// Sink is a running SMTP sink.
type Sink struct {
	*Proc
	SMTP string // host:port
	HTTP string // base URL of its control
	Dir  string // where it keeps mails; empty: it does not
}

// StartSink builds and starts bench/sink; keep makes it keep every mail in a folder.
func (l *Lab) StartSink(ctx context.Context, keep bool, args ...string) (*Sink, error) {
	prog, err := l.Build(ctx, "./bench/sink")
	if err != nil {
		return nil, err
	}
	smtp, err := Port()
	if err != nil {
		return nil, err
	}
	ctl, err := Port()
	if err != nil {
		return nil, err
	}
	s := &Sink{SMTP: fmt.Sprintf("127.0.0.1:%d", smtp), HTTP: fmt.Sprintf("http://127.0.0.1:%d", ctl)}
	all := append([]string{"-q", "-rcpt", "-addr", s.SMTP, "-ctl", fmt.Sprintf("127.0.0.1:%d", ctl)}, args...)
	if keep {
		s.Dir = filepath.Join(l.Dir, "mails")
		if err := os.MkdirAll(s.Dir, 0o755); err != nil {
			return nil, err
		}
		all = append(all, "-dir", s.Dir)
	}
	if s.Proc, err = l.Start("sink", prog, all...); err != nil {
		return nil, err
	}
	return s, s.AwaitTCP(ctx, s.SMTP)
}
