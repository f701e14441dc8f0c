package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSites(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       map[string][]string
		fault      string
	}{
		{name: "hosts by site", text: `{shop: [shop.example.com, "*.shop.example.com"], blog: ["*"]}`, want: map[string][]string{"shop": {"shop.example.com", "*.shop.example.com"}, "blog": {"*"}}},
		{name: "one host", text: `{shop: shop.example.com}`, want: map[string][]string{"shop": {"shop.example.com"}}},
		{name: "a host beyond ASCII", text: `{shop: [münchen.example]}`, want: map[string][]string{"shop": {"münchen.example"}}},
		{name: "a list", text: `[shop]`, fault: "is no map of sites and hosts"},
		{name: "no hosts", text: `{shop: []}`, fault: "shop: names no hosts"},
		{name: "an address", text: `{shop: ["https://shop.example.com/"]}`, fault: "is no host"},
		{name: "a port", text: `{shop: ["localhost:3000"]}`, fault: "is no host"},
		{name: "a star in the middle", text: `{shop: ["shop.*.com"]}`, fault: "is no host"},
		{name: "a name with a dot", text: `{sh.op: [a.example]}`, fault: "is no name of a site"},
		{name: "the name of everything", text: `{all: [a.example]}`, fault: "is no name of a site"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, err := Load(map[string]string{"sites": row.text}, func(string) (string, bool) { return "", false }, emptyFile(t))
			switch {
			case row.fault != "" && (err == nil || !strings.Contains(err.Error(), row.fault)):
				t.Errorf("got %v, want a fault that says %q", err, row.fault)
			case row.fault == "" && err != nil:
				t.Error(err)
			case row.fault == "" && !cmp.Equal(c.Sites, row.want):
				t.Errorf("got %v, want %v", c.Sites, row.want)
			}
		})
	}
}

// In the file, sites are written as YAML and not as one line of it.
func TestSitesInTheFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "postbit.yaml")
	text := "sites:\n  shop:\n    - shop.example.com\ndo_not_track: ignore\ntop_values: 10\ntop_days: false\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(nil, func(string) (string, bool) { return "", false }, name)
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(c.Sites, map[string][]string{"shop": {"shop.example.com"}}) || c.DoNotTrack != "ignore" || c.TopValues != 10 || c.TopDays {
		t.Errorf("got %+v", c)
	}
}

func emptyFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "postbit.yaml")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
