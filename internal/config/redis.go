package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"

	"postbit/internal/spelling"
)

// RedisConnOpt reads a Redis address:
//
//	redis://[user:pass@]host[:port][/db]                              one server; rediss:// with TLS
//	redis-socket:/path[?db=n]                                         one server by its unix socket
//	redis-sentinel://[user:pass@]host[:port],…[/db]?master=NAME       [&sentinel_password=…]; rediss-sentinel:// with TLS
//	redis-cluster://[user:pass@]host[:port],…                         rediss-cluster:// with TLS
//
// With TLS, ?ca=FILE names a PEM file with the certificates to trust instead of the system's; it is read here. Errors never
// show the address, which may hold a password.
func RedisConnOpt(u URI) (asynq.RedisConnOpt, error) {
	scheme, rest, ok := strings.Cut(u.Reveal(), ":")
	form := strings.ToLower(scheme)
	kind, known := map[string]string{"redis": "single", "rediss": "single", "redis-socket": "socket",
		"redis-sentinel": "sentinel", "rediss-sentinel": "sentinel", "redis-cluster": "cluster", "rediss-cluster": "cluster"}[form]
	if !ok || !known {
		return nil, fmt.Errorf("must begin with redis://, rediss://, redis-socket:, redis-sentinel:// or redis-cluster://")
	}
	r, err := parseRedis(rest, kind)
	if err != nil {
		return nil, err
	}
	var secure *tls.Config
	if strings.HasPrefix(form, "rediss") {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if r.ca != "" {
		if secure == nil {
			return nil, fmt.Errorf(`parameter "ca": there is no TLS; write rediss://`)
		}
		if secure.RootCAs, err = authorities(r.ca); err != nil {
			return nil, fmt.Errorf(`parameter "ca": %w`, err)
		}
	}
	switch kind {
	case "socket":
		return asynq.RedisClientOpt{Network: "unix", Addr: r.path, Username: r.user, Password: r.password, DB: r.db}, nil
	case "sentinel":
		return asynq.RedisFailoverClientOpt{MasterName: r.master, SentinelAddrs: r.hosts, SentinelPassword: r.sentinelPassword,
			Username: r.user, Password: r.password, DB: r.db, TLSConfig: secure}, nil
	case "cluster":
		return asynq.RedisClusterClientOpt{Addrs: r.hosts, Username: r.user, Password: r.password, TLSConfig: secure}, nil
	}
	if secure != nil {
		secure.ServerName, _, _ = net.SplitHostPort(r.hosts[0])
	}
	return asynq.RedisClientOpt{Addr: r.hosts[0], Username: r.user, Password: r.password, DB: r.db, TLSConfig: secure}, nil
}

// authorities reads the certificates of a PEM file.
func authorities(file string) (*x509.CertPool, error) {
	about, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !about.Mode().IsRegular() { // a device may have no end
		return nil, fmt.Errorf("%s is no file", file)
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return pool, nil
}

type redisAddress struct {
	hosts            []string
	path             string
	user, password   string
	db               int
	master           string
	sentinelPassword string
	ca               string
}

// parseRedis reads what stands after the scheme. net/url is of no help here: it refuses a list of hosts with ports.
func parseRedis(s, kind string) (r redisAddress, err error) {
	s, query, _ := strings.Cut(s, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return r, fmt.Errorf("the part after the ? can't be read; escape special characters with %%")
	}
	s = strings.TrimPrefix(s, "//")
	if at := strings.LastIndexByte(s, '@'); at >= 0 {
		if r.user, r.password, err = userinfo(s[:at]); err != nil {
			return r, err
		}
		s = s[at+1:]
	}
	db := values.Get("db")
	if kind == "socket" {
		r.path = s
		if !strings.HasPrefix(s, "/") {
			return r, fmt.Errorf("names no socket; write redis-socket:/run/redis/redis.sock")
		}
	} else {
		hosts, path, _ := strings.Cut(s, "/")
		if r.hosts, err = hostList(hosts, kind); err != nil {
			return r, err
		}
		if path != "" {
			db = path
		}
	}
	if r.db, err = number(db); err != nil || r.db != 0 && kind == "cluster" {
		return r, fmt.Errorf("the database must be a number (0 in a cluster)")
	}
	r.master, r.sentinelPassword, r.ca = values.Get("master"), values.Get("sentinel_password"), values.Get("ca")
	if kind == "sentinel" && r.master == "" {
		return r, fmt.Errorf("names no master; add ?master=NAME, the name that the sentinels watch")
	}
	for k := range values {
		if k != "db" && k != "ca" && !(kind == "sentinel" && (k == "master" || k == "sentinel_password")) {
			return r, fmt.Errorf("parameter %q: unknown%s", k, spelling.Hint(k, []string{"ca", "db", "master", "sentinel_password"}))
		}
	}
	return r, nil
}

func userinfo(s string) (user, password string, err error) {
	user, password, _ = strings.Cut(s, ":")
	if user, err = url.PathUnescape(user); err == nil {
		password, err = url.PathUnescape(password)
	}
	if err != nil {
		return "", "", fmt.Errorf("user or password can't be read; escape special characters with %%")
	}
	return user, password, nil
}

func hostList(s, kind string) ([]string, error) {
	port := "6379"
	if kind == "sentinel" {
		port = "26379"
	}
	var hosts []string
	for _, h := range strings.Split(s, ",") {
		if h == "" || strings.ContainsAny(h, " \t\r\n") {
			return nil, fmt.Errorf("names no host; write redis://host:6379")
		}
		if _, p, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		} else if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("the port must be a number up to 65535")
		}
		hosts = append(hosts, h)
	}
	if len(hosts) > 1 && kind == "single" {
		return nil, fmt.Errorf("names several hosts; say which they are with redis-cluster:// or redis-sentinel://")
	}
	return hosts, nil
}

func number(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err
}
