package track

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	noon    = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	testRun = [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
)

func secret(c string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(c, 32)))
}

func testKeys(t testing.TB) *Keys {
	t.Helper()
	ks, err := ParseKeys("k1:" + secret("s"))
	if err != nil {
		t.Fatal(err)
	}
	return ks
}

func userID(t testing.TB, v any) bson.RawValue {
	t.Helper()
	typ, b, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return bson.RawValue{Type: typ, Value: b}
}

func testHit(t testing.TB, n int) Hit {
	return Hit{Kind: Open, Run: testRun, User: userID(t, int64(n)), SentAt: noon, At: noon.Add(time.Hour), Method: "GET", UserAgent: "Mozilla/5.0 (X11)"}
}
