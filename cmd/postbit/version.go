package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker for a release: -ldflags "-X main.version=v1.2.3".
var version string

type versionCmd struct{}

func (versionCmd) Help() string {
	return `Example:

    postbit version --json`
}

type versionJSON struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (versionCmd) Run(a *app) error {
	v := versionJSON{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v.Version == "" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	if a.json {
		return a.printJSON(v)
	}
	_, err := fmt.Fprintf(a.out, "postbit %s (%s, %s)\n", v.Version, v.Go, v.Platform)
	return err
}
