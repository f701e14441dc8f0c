package users

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/mail"
	"postbit/rules"
)

// Facts says which fields of the document a rule's finding about the user rests on, for explain. Rules that read nothing
// but dates have none.
func (s *Store) Facts(u *User, rule rules.Rule) rules.Facts {
	var f found
	complete := s.walk(u.Doc, s.fields, &f)
	switch rule {
	case rules.Address:
		v := f.values[slotEmail]
		facts := rules.Facts{{Name: s.cfg.Email, Value: show(v)}}
		if text, ok := textOf(v); ok && !u.Recipient.AddressOK {
			_, _, _, err := mail.Normalize(clip(text, 1024))
			if err != nil {
				facts = append(facts, rules.Fact{Name: "problem", Value: err.Error()})
			}
		}
		return facts
	case rules.Suppressed:
		facts := rules.Facts{{Name: s.paths.status, Value: show(u.was.status)}}
		for i := range s.when {
			w := &s.when[i]
			facts = append(facts, rules.Fact{Name: w.path, Value: show(lookup(u.Doc, w.path))})
		}
		slices.SortFunc(facts[1:], func(a, b rules.Fact) int { return strings.Compare(a.Name, b.Name) })
		return facts
	case rules.Unreadable:
		return s.unreadableFacts(u, &f, complete)
	case rules.TimeOfDay:
		return rules.Facts{{Name: s.cfg.Timezone, Value: show(f.values[slotZone])}}
	}
	return nil
}

func (s *Store) unreadableFacts(u *User, f *found, complete bool) rules.Facts {
	var facts rules.Facts
	if !complete {
		facts = append(facts, rules.Fact{Name: "document", Value: "broken"})
	}
	if f.unreadable {
		facts = append(facts, rules.Fact{Name: "document", Value: s.cfg.Bits + " or " + s.cfg.State + " lies in something that is no document"})
	}
	bits := "readable"
	if u.was.bitsErr != nil {
		bits = u.was.bitsErr.Error()
	}
	state := "readable"
	if !u.was.readable {
		state = show(f.values[slotState])
	}
	facts = append(facts, rules.Fact{Name: s.cfg.Bits, Value: bits}, rules.Fact{Name: s.cfg.State, Value: state})
	for _, m := range [...]struct {
		path string
		at   slot
	}{{s.cfg.FirstAt, slotFirstAt}, {s.cfg.LastAt, slotLastAt}, {s.cfg.OpenFirstAt, slotOpenFirstAt}, {s.cfg.OpenLastAt, slotOpenLastAt}} {
		if _, ok := dateOf(f.values[m.at]); !ok {
			facts = append(facts, rules.Fact{Name: m.path, Value: show(f.values[m.at])})
		}
	}
	return facts
}

// show writes a value for an operator: texts as they are, all else as Extended JSON, nothing longer than a line.
func show(v bson.RawValue) string {
	const line = 200
	if v.Type == 0 {
		return "missing"
	}
	if text, ok := textOf(v); ok {
		return clip(text, line)
	}
	if v.Validate() != nil {
		return "broken"
	}
	return clip([]byte(v.String()), line)
}

// lookup reads one path as Parse does. (bson.Raw.LookupErr panics on some broken arrays.)
func lookup(doc bson.Raw, path string) bson.RawValue {
	only := &Store{fields: &field{}}
	only.fields.add(path, slotEmail)
	var f found
	only.walk(doc, only.fields, &f)
	return f.values[slotEmail]
}
