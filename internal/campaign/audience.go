package campaign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.yaml.in/yaml/v3"
)

// An audience travels as the JSON that its author wrote (as YAML): in memory bson.D, bson.A, string, int64, float64, bool and
// nil, with the wrappers of Extended JSON and $ago still in place. query turns it into what MongoDB is asked.

// AudienceQuery is the audience as a MongoDB query, with every $ago counted back from the start of a run.
func (s *Spec) AudienceQuery(startedAt time.Time) (bson.D, error) {
	written, err := decodeAudience([]byte(s.Audience))
	if err == nil {
		var q bson.D
		if q, err = query(written, startedAt); err == nil {
			return q, nil
		}
	}
	return nil, fmt.Errorf("campaign %s: audience: %w", s.Name, err)
}

// audience reads the node of an audience, and returns it as JSON.
func (r *reader) audience(n *yaml.Node, key string) string {
	before := len(r.errs)
	written := r.written(n, key, "", 0)
	if len(r.errs) > before {
		return ""
	}
	doc, ok := written.(bson.D)
	if !ok {
		r.fail(n.Line, key, "must be a MongoDB query such as { plan: free }; {} means every user")
		return ""
	}
	if _, err := query(doc, time.Unix(0, 0)); err != nil {
		var at *queryError
		line := n.Line
		if errors.As(err, &at) {
			for path := key + at.path; ; path = path[:strings.LastIndexByte(path, '.')] {
				if l, ok := r.lines[path]; ok {
					line = l
					break
				}
				if !strings.Contains(path, ".") {
					break
				}
			}
			r.fail(line, clip(key+at.path), "%v", at.err)
			return ""
		}
		r.fail(line, key, "%v", err)
		return ""
	}
	var b bytes.Buffer
	if err := encodeAudience(&b, doc); err != nil {
		r.fail(n.Line, key, "%v", err)
		return ""
	}
	return b.String()
}

// written is a node of a query as it stands in the file; parent is the key it belongs to.
func (r *reader) written(n *yaml.Node, path, parent string, depth int) any {
	if !r.plain(n, path) {
		return nil
	}
	if depth > maxDepth {
		r.fail(n.Line, clip(path), "nested deeper than %d levels", maxDepth)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		doc := bson.D{}
		r.each(n, path, func(name, key string, _, v *yaml.Node) {
			doc = append(doc, bson.E{Key: name, Value: r.written(v, key, name, depth+1)})
		})
		return doc
	case yaml.SequenceNode:
		list := bson.A{}
		for i, item := range n.Content {
			key := fmt.Sprintf("%s.%d", path, i)
			r.lines[key] = item.Line
			list = append(list, r.written(item, key, parent, depth+1))
		}
		return list
	}
	return r.scalar(n, path, parent)
}

func (r *reader) scalar(n *yaml.Node, path, parent string) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!str":
		return n.Value
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err == nil {
			return b
		}
	case "!!int":
		var i int64
		if err := n.Decode(&i); err == nil {
			return i
		}
		return r.tooLarge(n, path)
	case "!!float":
		if strings.Trim(n.Value, "+-_0123456789") == "" { // whole, and beyond what YAML calls an integer
			return r.tooLarge(n, path)
		}
		var f float64
		if err := n.Decode(&f); err == nil {
			if math.IsNaN(f) || math.IsInf(f, 0) {
				return bson.D{{Key: "$numberDouble", Value: doubleName(f)}}
			}
			return f
		}
	case "!!timestamp": // 2026-12-01 without quotes
		var t time.Time
		if err := n.Decode(&t); err == nil {
			text := t.UTC().Format(time.RFC3339Nano)
			if parent == "$date" {
				return text
			}
			return bson.D{{Key: "$date", Value: text}}
		}
	}
	r.fail(n.Line, clip(path), "%s cannot be part of a query", clip(n.Value))
	return nil
}

func (r *reader) tooLarge(n *yaml.Node, path string) any {
	r.fail(n.Line, clip(path), "%s does not fit into 64 bits; write { $numberDecimal: \"…\" }", clip(n.Value))
	return nil
}

func doubleName(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return "NaN"
}

// encodeAudience writes v as JSON, keys in their order.
func encodeAudience(b *bytes.Buffer, v any) error {
	switch v := v.(type) {
	case bson.D:
		b.WriteByte('{')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := encodeAudience(b, e.Key); err != nil {
				return err
			}
			b.WriteByte(':')
			if err := encodeAudience(b, e.Value); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	case bson.A:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := encodeAudience(b, e); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	}
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the encoder ends with a newline
	return nil
}

// decodeAudience reads what encodeAudience wrote.
func decodeAudience(data []byte) (bson.D, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := decodeValue(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the query")
	}
	doc, ok := v.(bson.D)
	if !ok {
		return nil, errors.New("must be an object")
	}
	return doc, nil
}

func decodeValue(dec *json.Decoder, depth int) (any, error) {
	if depth > maxDepth+1 {
		return nil, fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := tok.(type) {
	case json.Number:
		if i, err := t.Int64(); err == nil {
			return i, nil
		}
		return t.Float64()
	case json.Delim:
		if t == '[' {
			list := bson.A{}
			for dec.More() {
				v, err := decodeValue(dec, depth+1)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err := dec.Token()
			return list, err
		}
		doc := bson.D{}
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return nil, err
			}
			v, err := decodeValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			doc = append(doc, bson.E{Key: name.(string), Value: v})
		}
		_, err := dec.Token()
		return doc, err
	}
	return tok, nil
}
