package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzDecode parses any bytes as a record file and as the body of a complete one.
func FuzzDecode(f *testing.F) {
	for _, data := range goldenBytes(f) {
		f.Add(data)
		_, body, err := open(data)
		require.NoError(f, err)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, file := range [][]byte{data, sealed(schema, data), sealed(schema+1, data)} {
			r, err := Decode(file)
			if err == nil {
				require.Len(t, r.CDI.Devices, len(r.Results), "each result has the device that it is answered with")
				survives(t, file, r)
				continue
			}
			require.Nil(t, r)
			if newer, ok := errors.AsType[*NewerError](err); ok {
				refusesRewrite(t, newer)
				continue
			}
			require.ErrorIs(t, err, ErrDamaged)
		}
	})
}

// refusesRewrite requires that a newer record is never written by this version.
func refusesRewrite(t *testing.T, newer *NewerError) {
	t.Helper()
	require.NotEmpty(t, newer.Error())
	if newer.Record != nil {
		_ = newer.Record.GPUs()
		_, err := Encode(newer.Record)
		require.ErrorContains(t, err, "this version does not know")
	}
}

// survives requires that an accepted record is written as it was read, including unknown keys, and read again as it was written.
func survives(t *testing.T, file []byte, r *Record) {
	t.Helper()
	first, err := Encode(r)
	require.NoError(t, err)
	again, err := Decode(first)
	require.NoError(t, err, "%s", first)
	second, err := Encode(again)
	require.NoError(t, err)
	require.Equal(t, string(first), string(second))

	_, before, err := open(file)
	require.NoError(t, err)
	_, after, err := open(first)
	require.NoError(t, err)
	was := parse(t, before)
	adopted(was)
	require.NoError(t, holds(parse(t, after), was), "%s\nbecame\n%s", before, after)

	r.State, again.State = Releasing, Releasing
	changed, err := Encode(r)
	require.NoError(t, err)
	again, err = Decode(changed)
	require.NoError(t, err)
	require.Equal(t, Releasing, again.State, "%s", changed)
}

// adopted moves members of schema 1 to their place in the second schema.
func adopted(value any) {
	record, _ := value.(map[string]any)
	adoptedIn(record, formerOfRecord)
	results, _ := record["results"].([]any)
	for _, result := range results {
		object, _ := result.(map[string]any)
		adoptedIn(object, formerOfResult)
	}
}

func adoptedIn(object map[string]any, former map[string]string) {
	extensions, _ := object["extensions"].(map[string]any)
	for member, kind := range former {
		data, found := object[member]
		if _, taken := extensions[kind]; !found || taken {
			continue
		}
		delete(object, member)
		if data == true {
			data = map[string]any{}
		}
		if !empty(data) || data != nil && data != false {
			if extensions == nil {
				extensions = map[string]any{}
			}
			extensions[kind], object["extensions"] = data, extensions
		}
	}
}

func parse(t *testing.T, text []byte) any {
	t.Helper()
	var value any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&value))
	return value
}

// holds requires that a JSON value contains everything of another one, from which it was created. Empty values may be omitted.
func holds(after, before any) error {
	switch before := before.(type) {
	case map[string]any:
		return holdsMembers(after, before)
	case []any:
		return holdsElements(after, before)
	case nil:
		return nil
	default:
		if after != before && !sameTime(after, before) {
			return fmt.Errorf("%#v became %#v", before, after)
		}
		return nil
	}
}

func holdsMembers(after any, before map[string]any) error {
	object, ok := after.(map[string]any)
	if !ok && len(before) > 0 {
		return fmt.Errorf("%v became %v", before, after)
	}
	for key, was := range before {
		is, found := object[key]
		if !found && empty(was) {
			continue
		}
		if err := holds(is, was); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func holdsElements(after any, before []any) error {
	list, ok := after.([]any)
	if !ok && len(before) > 0 || len(list) != len(before) {
		return fmt.Errorf("%v became %v", before, after)
	}
	for i := range before {
		if err := holds(list[i], before[i]); err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
	}
	return nil
}

func empty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return value == nil || value == false || value == ""
	}
}

func sameTime(a, b any) bool {
	one, ok := a.(string)
	other, ok2 := b.(string)
	if !ok || !ok2 {
		return false
	}
	t1, err := time.Parse(time.RFC3339Nano, one)
	t2, err2 := time.Parse(time.RFC3339Nano, other)
	return err == nil && err2 == nil && t1.Equal(t2)
}
