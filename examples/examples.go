// Package examples holds sample templates and campaigns, and `postbit demo` runs on them.
package examples

import "embed"

// FS has the folders templates and campaigns. Their files that begin with _ are layout and partials.
//
//go:embed all:templates all:campaigns
var FS embed.FS
