package report

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestVersion_AnyFieldChanges_AnotherOne: fields that identify a report also change its UID.
func TestVersion_AnyFieldChanges_AnotherOne(t *testing.T) {
	t.Parallel()
	named := map[string]bool{"ID": true, "UID": true, "ClaimUID": true, "Node": true}
	base := Report{Started: time.Unix(1, 0)}
	versions := map[string]bool{base.Version(): true}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Report]()) {
		changed := base
		switch value := reflect.ValueOf(&changed).Elem().FieldByIndex(field.Index); value.Interface().(type) {
		case string, State:
			value.SetString("x")
		case int, int64:
			value.SetInt(1)
		case time.Time:
			value.Set(reflect.ValueOf(time.Unix(2, 0)))
		case *time.Time:
			value.Set(reflect.ValueOf(new(time.Unix(2, 0))))
		default:
			require.Fail(t, "add its kind", field.Name)
		}
		assert.Equal(t, field.Name == "NamespaceUID", versions[changed.Version()], field.Name)
		versions[changed.Version()] = true
		assert.Equal(t, named[field.Name], changed.ObjectUID() != base.ObjectUID(), field.Name)
	}
	assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, base.ObjectUID())
	assert.NotEqual(t, Report{ID: "ab", UID: "c"}.ObjectUID(), Report{ID: "a", UID: "bc"}.ObjectUID())
}

func TestDeletion_Query_ReadAsWritten(t *testing.T) {
	t.Parallel()
	for _, d := range []Deletion{{}, {UID: "u"}, {Version: "v&="}, {DryRun: true}, {"u", "v", true}} {
		assert.Equal(t, d, ParseDeletion(d.Query()))
	}
}
