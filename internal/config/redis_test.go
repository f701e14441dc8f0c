package config

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hibiken/asynq"
)

func TestRedisConnOpt(t *testing.T) {
	for _, tc := range []struct {
		uri  string
		want asynq.RedisConnOpt
	}{
		{"redis://h", asynq.RedisClientOpt{Addr: "h:6379"}},
		{"redis://h:1/3", asynq.RedisClientOpt{Addr: "h:1", DB: 3}},
		{"redis://app:p%40ss@h:1?db=2", asynq.RedisClientOpt{Addr: "h:1", Username: "app", Password: "p@ss", DB: 2}},
		{"redis://[::1]:1", asynq.RedisClientOpt{Addr: "[::1]:1"}},
		{"redis://[::1]", asynq.RedisClientOpt{Addr: "[::1]:6379"}},
		{"rediss://:pw@h", asynq.RedisClientOpt{Addr: "h:6379", Password: "pw", TLSConfig: &tls.Config{ServerName: "h"}}},
		{"redis-socket:/run/r.sock?db=1", asynq.RedisClientOpt{Network: "unix", Addr: "/run/r.sock", DB: 1}},
		{"redis-socket://:pw@/run/r.sock", asynq.RedisClientOpt{Network: "unix", Addr: "/run/r.sock", Password: "pw"}},
		{"redis-sentinel://u:p@a,b:2/4?master=m&sentinel_password=s", asynq.RedisFailoverClientOpt{MasterName: "m", SentinelAddrs: []string{"a:26379", "b:2"}, SentinelPassword: "s", Username: "u", Password: "p", DB: 4}},
		{"rediss-sentinel://a?master=m", asynq.RedisFailoverClientOpt{MasterName: "m", SentinelAddrs: []string{"a:26379"}, TLSConfig: &tls.Config{}}},
		{"redis-cluster://u:p@a:1,b", asynq.RedisClusterClientOpt{Addrs: []string{"a:1", "b:6379"}, Username: "u", Password: "p"}},
		{"rediss-cluster://a", asynq.RedisClusterClientOpt{Addrs: []string{"a:6379"}, TLSConfig: &tls.Config{}}},
	} {
		t.Run(tc.uri, func(t *testing.T) {
			got, err := RedisConnOpt(NewURI(tc.uri))
			if err != nil {
				t.Fatal(err)
			}
			sameTLS := cmp.Comparer(func(a, b *tls.Config) bool {
				return (a == nil) == (b == nil) && (a == nil || a.ServerName == b.ServerName)
			})
			if diff := cmp.Diff(tc.want, got, sameTLS, cmpopts.IgnoreFields(asynq.RedisClusterClientOpt{}, "MaxRedirects")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRedisConnOptRefuses(t *testing.T) {
	for _, tc := range []struct{ uri, want string }{
		{"", "must begin with"},
		{"http://h", "must begin with"},
		{"h:6379", "must begin with"},
		{"redis://", "names no host"},
		{"redis://h,", "names no host"},
		{"redis://a,b", "several hosts"},
		{"redis://h:port", "port must be a number"},
		{"redis://h:70000", "port must be a number"},
		{"redis://h/x", "database must be a number"},
		{"redis://h/-1", "database must be a number"},
		{"redis-cluster://h/2", "0 in a cluster"},
		{"redis-sentinel://h", "names no master"},
		{"redis-socket:r.sock", "names no socket"},
		{"redis://u:%zz@h", "can't be read"},
		{"redis://h?timeout=1", `"timeout": unknown`},
		{"redis-sentinel://h?mater=m&master=m", `"mater": unknown; master?`},
		{"redis://:hunter2@h?ca=/etc/ca.pem", `"ca": there is no TLS; write rediss://`},
		{"redis-socket:/run/r.sock?ca=/etc/ca.pem", `"ca": there is no TLS`},
		{"rediss://:hunter2@h?ca=/no/such/file", `"ca": stat /no/such/file`},
		{"rediss://h?ca=/dev/zero", `"ca": /dev/zero is no file`},
		{"rediss-cluster://h?ca=redis_test.go", `"ca": redis_test.go holds no PEM certificate`},
	} {
		if _, err := RedisConnOpt(NewURI(tc.uri)); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want …%s…", tc.uri, err, tc.want)
		}
	}
}

func FuzzRedisConnOpt(f *testing.F) {
	f.Add("redis-sentinel://u:p@a,b:2/4?master=m")
	f.Add("redis-socket://:pw@/run/r.sock?db=1")
	f.Fuzz(func(t *testing.T, s string) {
		opt, err := RedisConnOpt(NewURI(s))
		if (opt == nil) == (err == nil) {
			t.Errorf("%v %v", opt, err)
		}
		_ = NewURI(s).String()
	})
}
