package minimongo

import (
	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

func (s *Server) listCollections(r *request, dst []byte) ([]byte, error) {
	f := matchAll
	namesOnly := false
	err := r.each(func(key string, v value) (known bool, err error) {
		switch key {
		case "filter":
			f, err = wantFilter(key, v)
		case "nameOnly":
			namesOnly, err = wantBool(key, v)
		case "cursor", "authorizedCollections":
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	var docs []document
	err = s.store.view(func(tx *bolt.Tx) error {
		colls, err := s.store.collections(tx, r.db)
		for _, c := range colls {
			b := bsoncore.NewDocumentBuilder().AppendString("name", c.name).AppendString("type", "collection")
			if !namesOnly {
				b.AppendDocument("options", emptyDocument).
					AppendDocument("info", bsoncore.NewDocumentBuilder().AppendBoolean("readOnly", false).Build()).
					AppendDocument("idIndex", (&index{name: idIndexName, pattern: idPattern, ttl: -1}).describe())
			}
			if doc := b.Build(); f.match(doc) {
				docs = append(docs, doc)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.replyList(r, dst, r.db+".$cmd.listCollections", docs)
}

func (s *Server) listDatabases(r *request, dst []byte) ([]byte, error) {
	f := matchAll
	err := r.each(func(key string, v value) (known bool, err error) {
		switch key {
		case "filter":
			f, err = wantFilter(key, v)
		case "nameOnly", "authorizedDatabases":
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	var names []string
	err = s.store.view(func(tx *bolt.Tx) error {
		colls, err := s.store.collections(tx, "")
		for _, c := range colls {
			if _, ok := sizes[c.db]; !ok {
				names = append(names, c.db)
			}
			st := tx.Bucket(c.documents()).Stats()
			sizes[c.db] += int64(st.LeafAlloc + st.BranchAlloc)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	at, dst := bsoncore.AppendArrayElementStart(dst, "databases")
	total, n := int64(0), 0
	for _, name := range names {
		doc := bsoncore.NewDocumentBuilder().AppendString("name", name).AppendInt64("sizeOnDisk", sizes[name]).AppendBoolean("empty", false).Build()
		if f.match(doc) {
			dst = bsoncore.AppendDocumentElement(dst, string(arrayKey(n)), doc)
			total += sizes[name]
			n++
		}
	}
	dst, _ = bsoncore.AppendArrayEnd(dst, at)
	return bsoncore.AppendInt64Element(dst, "totalSize", total), nil
}

func (s *Server) create(r *request, dst []byte) ([]byte, error) {
	coll, err := r.collection()
	if err == nil {
		err = r.each(func(string, value) (bool, error) { return false, nil })
	}
	if err != nil {
		return nil, err
	}
	return dst, s.store.update(r.ctx, func(tx *bolt.Tx) error {
		_, err := s.store.ensure(tx, r.db, coll)
		return err
	})
}

func (s *Server) dropCollection(r *request, dst []byte) ([]byte, error) {
	coll, err := r.collection()
	if err == nil {
		err = r.each(func(string, value) (bool, error) { return false, nil })
	}
	if err != nil {
		return nil, err
	}
	err = s.store.update(r.ctx, func(tx *bolt.Tx) error {
		c, err := s.store.lookup(tx, r.db, coll)
		if c == nil || err != nil {
			return err
		}
		return s.store.drop(tx, c)
	})
	return bsoncore.AppendStringElement(dst, "ns", r.db+"."+coll), err
}

func (s *Server) dropDatabase(r *request, dst []byte) ([]byte, error) {
	if err := r.each(func(string, value) (bool, error) { return false, nil }); err != nil {
		return nil, err
	}
	err := s.store.update(r.ctx, func(tx *bolt.Tx) error {
		colls, err := s.store.collections(tx, r.db)
		for _, c := range colls {
			if err := s.store.drop(tx, c); err != nil {
				return err
			}
		}
		return err
	})
	return bsoncore.AppendStringElement(dst, "dropped", r.db), err
}
