package users

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/bitfield"
	"postbit/internal/mail"
	"postbit/rules"
)

// User is a user document as the rules see it, and what a claim on it compares.
type User struct {
	ID  bson.RawValue
	Doc bson.Raw // what was loaded, for rendering

	Email     string // as mail.Normalize gives it; empty where Recipient.AddressOK is false
	Domain    string // of Email: lower case A-labels
	NeedsUTF8 bool   // of Email: SMTPUTF8 is needed

	UnknownZone bool   // the zone is missing or unknown, so Recipient.Zone is the default
	Status      string // of the state; empty: none
	Recipient   rules.Recipient

	was  snapshot
	load *projectionOf
}

// projectionOf remembers how a user was loaded, so that he can be loaded again in the same way.
type projectionOf struct {
	fields bson.D
	bit    int
}

// snapshot is the part of a document that a claim depends on, as it was read. Values of type 0 are missing.
type snapshot struct {
	bits     bson.RawValue
	state    bson.Type // 0, null or document; anything else is unreadable
	firstAt  bson.RawValue
	lastAt   bson.RawValue
	status   bson.RawValue
	runs     [2]RunID
	blob     []byte    // bits, decoded
	lastTime time.Time // lastAt, decoded
	readable bool      // the state is one that claims wrote
	bitsErr  error     // why the bits can't be read
}

// RunID is the short id of a run, as claims name it.
type RunID = [8]byte

// runsBytes is the length of the field `runs`: the last two claims, the last one first. Zeros stand for none.
const runsBytes = 16

// Bits is the decoded blob; nil where it is missing or unreadable. It must not be changed.
func (u *User) Bits() []byte { return u.was.blob }

// Parse reads a user document. It never fails: what can't be read shows in Recipient.Unreadable or as a false AddressOK.
// The user refers to doc, which must stay as it is.
func (s *Store) Parse(doc bson.Raw, bit int) User {
	var u User
	s.parse(&u, doc, bit)
	return u
}

// parse fills in a zero User.
func (s *Store) parse(u *User, doc bson.Raw, bit int) {
	var f found
	u.Doc = doc
	r := &u.Recipient
	if !s.walk(doc, s.fields, &f) {
		f.unreadable = true
	}
	u.ID = f.values[slotID]
	u.readAddress(f.values[slotEmail])
	u.readZone(s, f.values[slotZone])
	r.Unreadable = f.unreadable
	u.readBits(f.values[slotBits], bit)
	u.readState(f.values[slotState])
	u.readMapped(&f)
	if before := s.cfg.HistoryBefore; !before.IsZero() && r.FirstAt.IsZero() && r.LastAt.IsZero() && bitfield.Any(u.was.blob) {
		r.FirstAt, r.LastAt = before, before
	}
	r.Suppressed = u.Status != "" || f.suppressed
	for i := range s.when {
		r.Suppressed = r.Suppressed || s.when[i].orNone && f.seen&(1<<i) == 0
	}
}

func (u *User) readAddress(v bson.RawValue) {
	text, ok := textOf(v)
	if !ok || len(text) > 1024 { // no address is that long; don't look through megabytes
		return
	}
	addr, domain, utf8, err := mail.Normalize(string(text))
	if err != nil {
		return
	}
	u.Email, u.Domain, u.NeedsUTF8, u.Recipient.AddressOK = addr, domain, utf8, true
}

func (u *User) readZone(s *Store, v bson.RawValue) {
	if text, ok := textOf(v); ok {
		u.Recipient.Zone = s.zone(text)
	}
	if u.Recipient.Zone == nil {
		u.Recipient.Zone, u.UnknownZone = s.cfg.DefaultZone, true
	}
}

func (u *User) readBits(v bson.RawValue, bit int) {
	blob, err := bitfield.Decode(v)
	if err != nil {
		u.Recipient.Unreadable, u.was.bitsErr = true, err
		return
	}
	u.was.bits, u.was.blob = v, blob
	u.Recipient.HasBit = bitfield.Has(blob, bit)
}

// readState reads the sub-document that is ours. One thing in it that we would not have written, and all of it is
// unreadable, save that a status counts where it can be seen.
func (u *User) readState(v bson.RawValue) {
	r := &u.Recipient
	switch v.Type {
	case 0, bson.TypeNull:
		u.was.state, u.was.readable = v.Type, true
		return
	case bson.TypeEmbeddedDocument:
		u.was.state = v.Type
	default:
		r.Unreadable = true
		return
	}
	ok := true
	date := func(v bson.RawValue) time.Time {
		t, good := dateOf(v)
		ok = ok && good
		return t
	}
	complete := eachElement(v.Value, func(name []byte, v bson.RawValue) {
		switch string(name) {
		case "first_at":
			u.was.firstAt, r.FirstAt = v, date(v)
		case "last_at":
			u.was.lastAt, r.LastAt = v, date(v)
		case "open_first_at":
			r.OpenFirstAt = date(v)
		case "open_last_at":
			r.OpenLastAt = date(v)
		case "status":
			u.was.status = v
			text, isText := textOf(v)
			ok = ok && (isText || v.Type == bson.TypeNull)
			u.Status = clip(text, 64)
		case "runs":
			ok = ok && u.was.readRuns(v)
		}
	})
	u.was.lastTime = r.LastAt
	u.was.readable = ok && complete
	r.Unreadable = r.Unreadable || !u.was.readable
}

func (w *snapshot) readRuns(v bson.RawValue) bool {
	if v.Type == bson.TypeNull {
		return true
	}
	if v.Type != bson.TypeBinary || len(v.Value) != 5+runsBytes || v.Value[4] != bson.TypeBinaryGeneric {
		return false
	}
	copy(w.runs[0][:], v.Value[5:13])
	copy(w.runs[1][:], v.Value[13:21])
	return true
}

// readMapped puts the team's own dates beside ours. A date that is there and can't be read is not "never": it is unreadable.
func (u *User) readMapped(f *found) {
	r := &u.Recipient
	for _, m := range [...]struct {
		at    slot
		to    *time.Time
		later bool
	}{
		{slotFirstAt, &r.FirstAt, false},
		{slotLastAt, &r.LastAt, true},
		{slotOpenFirstAt, &r.OpenFirstAt, false},
		{slotOpenLastAt, &r.OpenLastAt, true},
	} {
		t, ok := dateOf(f.values[m.at])
		if !ok {
			r.Unreadable = true
			continue
		}
		if !t.IsZero() && (m.to.IsZero() || t.After(*m.to) == m.later) {
			*m.to = t
		}
	}
}
