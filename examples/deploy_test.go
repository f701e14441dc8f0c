package examples_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"postbit/internal/config"
)

// There is no Docker engine where the tests run, so what an engine would find out is looked at here: names, references, and what the
// files promise.

type service struct {
	Image       string
	Build       string
	Command     []string
	Environment map[string]string
	Volumes     []string
	Ports       []string
	DependsOn   map[string]any `yaml:"depends_on"`
}

type compose struct {
	Services map[string]service
	Volumes  map[string]any
}

func readCompose(t *testing.T) compose {
	t.Helper()
	b, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var c compose
	if err := yaml.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestComposeHasEveryPart(t *testing.T) {
	c := readCompose(t)
	roles := map[string]int{}
	for name, s := range c.Services {
		if i := slices.Index(s.Command, "--roles"); i >= 0 {
			roles[s.Command[i+1]]++
		}
		for dependency := range s.DependsOn {
			if _, ok := c.Services[dependency]; !ok {
				t.Errorf("%s depends on %s, which is not there", name, dependency)
			}
		}
		if s.Image == "" && s.Build == "" {
			t.Errorf("%s has no image", name)
		}
	}
	if roles["scheduler"] != 1 || roles["worker"] != 2 || roles["web"] != 1 {
		t.Errorf("roles are %v; one scheduler, two workers, one web", roles)
	}
	for _, name := range []string{"mongo", "redis", "mailpit"} {
		if _, ok := c.Services[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestComposeKeepsTheSpoolOnANamedVolume(t *testing.T) {
	c := readCompose(t)
	for _, v := range c.Services["web"].Volumes {
		name, target, _ := strings.Cut(v, ":")
		if _, named := c.Volumes[name]; named && target == "/data" {
			return
		}
	}
	t.Errorf("web keeps its data in %v: answered hits must survive the container", c.Services["web"].Volumes)
}

func TestComposeSetsSettingsThatExist(t *testing.T) {
	known := map[string]bool{}
	for i := range config.Settings {
		known[config.Settings[i].Env()] = true
	}
	defaults := regexp.MustCompile(`\$\{\w+:-(.*)\}`)
	for name, s := range readCompose(t).Services {
		for k := range s.Environment {
			if !known[k] {
				t.Errorf("%s sets %s, which is no setting", name, k)
			}
		}
		if s.Environment == nil {
			continue
		}
		env := func(k string) (string, bool) {
			v, ok := s.Environment[k]
			return defaults.ReplaceAllString(v, "$1"), ok
		}
		if _, err := config.Load(nil, env, ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheImageRunsWithoutRoot(t *testing.T) {
	b, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	final := string(b)[strings.LastIndex(string(b), "\nFROM "):]
	for _, line := range []string{"FROM scratch", "USER 65532:65532", "ENV POSTBIT_DATA_DIR=/data"} {
		if !strings.Contains(final, line+"\n") {
			t.Errorf("the final stage has no line %q", line)
		}
	}
	if !strings.Contains(string(b), "CGO_ENABLED=0") {
		t.Error("the binary must be static: there is no libc in the image")
	}
}
