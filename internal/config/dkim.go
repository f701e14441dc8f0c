package config

import (
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"postbit/internal/spelling"
)

// DKIMKey names a key that mails are signed with. The key itself stands in a file, and never in a setting.
type DKIMKey struct {
	Domain   string `yaml:"domain"`
	Selector string `yaml:"selector"`
	KeyFile  string `yaml:"key_file"`
}

var dkimKeys = []string{"domain", "selector", "key_file"}

// setDKIM takes a list of keys, or a single one. Whether the files hold any is found out when they are read.
func setDKIM(c *Config, v string) error {
	var list []map[string]string
	if err := yaml.Unmarshal([]byte(v), &list); err != nil {
		var one map[string]string
		if err := yaml.Unmarshal([]byte(v), &one); err != nil { // whose text may hold a key
			return fmt.Errorf("is no list of keys; write [{domain: example.com, selector: s1, key_file: FILE}]")
		}
		list = append(list, one)
	}
	keys := make([]DKIMKey, len(list))
	for i, m := range list {
		for name := range m {
			if isKey(name) {
				return errKeyInSetting
			}
			if spelling.Nearest(name, dkimKeys) != name {
				return fmt.Errorf("%q is unknown; a key has domain, selector and key_file%s", name, spelling.Hint(name, dkimKeys))
			}
		}
		keys[i] = DKIMKey{Domain: m["domain"], Selector: m["selector"], KeyFile: m["key_file"]}
		for _, name := range dkimKeys {
			if isKey(m[name]) {
				return errKeyInSetting
			}
			if m[name] == "" {
				return fmt.Errorf("key %d: has no %s; write {domain: example.com, selector: s1, key_file: FILE}", i+1, name)
			}
		}
	}
	c.DKIM = keys
	return nil
}

var errKeyInSetting = fmt.Errorf("holds a key itself; write it to a file that only postbit can read, and name that as key_file")

// isKey reports whether somebody wrote a key where its file should be named, which must not be repeated in an error.
func isKey(s string) bool {
	if strings.Contains(s, "-----") || strings.Contains(s, "\n") {
		return true
	}
	der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		return false
	}
	_, err = x509.ParsePKCS8PrivateKey(der)
	_, err1 := x509.ParsePKCS1PrivateKey(der)
	return err == nil || err1 == nil
}
