package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"postbit/internal/config"
	"postbit/internal/mail"
	"postbit/templates"
)

// signingKeys reads the keys that mails are signed with, and gives those that are good and what is wrong with the others.
func (a *app) signingKeys() (keys []*mail.SigningKey, faults []error) {
	for _, c := range a.cfg.DKIM {
		k, err := mail.ReadSigningKey(c.Domain, c.Selector, c.KeyFile)
		if err != nil {
			faults = append(faults, fmt.Errorf("POSTBIT_MAIL_DKIM: %w", err))
			continue
		}
		keys = append(keys, k)
	}
	return keys, faults
}

// signer is nil where no keys are set. The error is a *config.Error.
func (a *app) signer() (*mail.Signer, error) {
	if len(a.cfg.DKIM) == 0 {
		return nil, nil
	}
	keys, faults := a.signingKeys()
	if len(faults) > 0 {
		return nil, &config.Error{Faults: faults}
	}
	s, err := mail.NewSigner(keys...)
	if err != nil {
		return nil, &config.Error{Faults: []error{fmt.Errorf("POSTBIT_MAIL_DKIM: %w", err)}}
	}
	var names []string
	for _, k := range keys {
		names = append(names, k.Name())
	}
	a.log.Info("mails are signed", "keys", names)
	return s, nil
}

// lookupTXT gives the TXT records of a name, each with its strings put together, as net.Resolver does.
type lookupTXT func(ctx context.Context, name string) ([]string, error)

// dnsPatience is how long doctor waits for DNS, for each key.
const dnsPatience = 5 * time.Second

// lookAtDKIM looks at each key, and at what is published of it.
func (d *doctor) lookAtDKIM(ctx context.Context) {
	if len(d.cfg.DKIM) == 0 {
		if scheme := d.cfg.SMTPURL.Scheme(); scheme == "smtp" || scheme == "smtps" {
			d.note("dkim", checkOK, "postbit signs no mails, since mail.dkim is not set; the SMTP server has to")
		}
		return
	}
	for _, err := range d.keyFaults {
		d.note("dkim", checkFail, "%v", err)
	}
	if len(d.keys) > 0 {
		if _, err := mail.NewSigner(d.keys...); err != nil {
			d.note("dkim", checkFail, "POSTBIT_MAIL_DKIM: %v", err)
		}
	}
	for _, c := range d.cfg.DKIM {
		d.lookAtKeyFile(c.KeyFile)
	}
	for _, k := range d.keys {
		d.lookAtRecord(ctx, k)
	}
}

// unsigned is the app without its keys: one that is at fault is what lookAtDKIM tells of, and hides nothing of the SMTP server.
func (a *app) unsigned() *app {
	other, cfg := *a, *a.cfg
	cfg.DKIM, other.cfg = nil, &cfg
	return &other
}

// lookAtKeyFile warns and does not refuse: where secrets are mounted their mode is often not ours to choose.
func (d *doctor) lookAtKeyFile(name string) {
	const others, groupWrites = 0o007, 0o020
	if info, err := os.Stat(name); err == nil && info.Mode().Perm()&(others|groupWrites) != 0 {
		d.note("dkim", checkWarn, "%s has the mode %04o: others on this machine may read or replace the key; chmod 600", name, info.Mode().Perm())
	}
}

func (d *doctor) lookAtRecord(ctx context.Context, k *mail.SigningKey) {
	ctx, cancel := context.WithTimeout(ctx, dnsPatience)
	defer cancel()
	lookup := d.txt
	if lookup == nil {
		lookup = net.DefaultResolver.LookupTXT
	}
	records, err := lookup(ctx, k.Name()+".") // without the machine's search list
	if missing := (*net.DNSError)(nil); errors.As(err, &missing) && missing.IsNotFound {
		err = nil
	}
	if err != nil {
		d.note("dkim", checkWarn, "%s can't be looked up: %v. There should be: %s", k.Name(), err, k.ZoneLine())
		return
	}
	switch err := k.CheckRecord(records); {
	case err == nil:
		d.note("dkim", checkOK, "%s: the key is published", k.Name())
	case errors.Is(err, mail.ErrRecordTesting):
		d.note("dkim", checkWarn, "%s: %v", k.Name(), err)
	default:
		d.note("dkim", checkFail, "%s: %v. Publish: %s", k.Name(), err, k.ZoneLine())
	}
}

// lookAtSenders compares the senders of templates with the domains that sign. DMARC counts a signature only where both are of one organisation.
func (d *doctor) lookAtSenders(ctx context.Context, list []templates.Entry) {
	if len(d.keys) == 0 {
		return
	}
	stray := map[string][]string{} // templates by sender's domain
	for _, e := range list {
		if e.Revision == 0 || e.RetiredAt != nil {
			continue
		}
		t, err := d.templates.Get(ctx, e.Name)
		if err != nil {
			d.note("dkim", checkFail, "%v", err)
			return
		}
		from, err := mail.ParseAddress(cmp.Or(t.From, d.cfg.From))
		if err != nil {
			continue // which lookAtTemplates tells of
		}
		if domain := from.Addr[strings.LastIndexByte(from.Addr, '@')+1:]; !d.signs(domain) {
			stray[domain] = append(stray[domain], e.Name)
		}
	}
	var domains []string
	for _, k := range d.keys {
		if !slices.Contains(domains, k.Domain()) {
			domains = append(domains, k.Domain())
		}
	}
	for _, domain := range slices.Sorted(maps.Keys(stray)) {
		d.note("dkim", checkWarn, "%s: the sender is of %s and the keys are of %s; DMARC counts no signature of another organisation", strings.Join(stray[domain], ", "), domain, strings.Join(domains, ", "))
	}
}

// signs reports whether a key speaks for senders of a domain.
func (d *doctor) signs(domain string) bool {
	return slices.ContainsFunc(d.keys, func(k *mail.SigningKey) bool { return k.AlignedWith(domain) })
}
