package prepare

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/plugin/cdi"
)

// extension is an extension with every part, whose calls are in the journal of the world.
type extension struct {
	*world
	kind string
	// refused are why edits, files and their removal fail.
	noEdits, noFiles, stays error
}

func (e extension) Kind() string { return e.kind }

func (e extension) EditsOf(r *checkpoint.Record) ([]cdi.DeviceEdits, error) {
	return []cdi.DeviceEdits{{Device: r.CDI.Devices[0], Source: e.kind}}, e.noEdits
}

func (e extension) Mark(r *checkpoint.Result) string {
	if !r.Extensions.Has(e.kind) {
		return ""
	}
	return "+" + e.kind
}

func (e extension) Makes(path string) bool { return path == "/run/"+e.kind }

func (e extension) Ensure(r *checkpoint.Record) error {
	return errors.Join(e.op("ensure "+e.kind+" "+r.Claim.UID, func() error { return nil }), e.noFiles)
}

func (e extension) RemoveFiles(uid string) error {
	return errors.Join(e.op("clear "+e.kind+" "+uid, func() error { return nil }), e.stays)
}

func (e extension) Claims() ([]string, error) { return []string{"left-" + e.kind}, nil }

func (e extension) Written(r *checkpoint.Record) {
	_ = e.op("written "+e.kind+" "+r.Claim.UID, func() error { return nil })
}

func (e extension) Released(uid string) {
	_ = e.op("released "+e.kind+" "+uid, func() error { return nil })
}

// everywhere is an extension without data that concerns every record.
type everywhere struct{ Inactive }

func (everywhere) Concerns(*checkpoint.Record) bool { return true }

func (e everywhere) EditsOf(r *checkpoint.Record) ([]cdi.DeviceEdits, error) {
	return []cdi.DeviceEdits{{Device: r.CDI.Devices[0], Source: e.Kind()}}, nil
}

// requests keeps the request of the last Build.
type requests struct {
	Specs
	last *cdi.SpecRequest
}

// startExtended starts a process with two extensions, for claims that request the first.
func startExtended(t *testing.T, w *world, first extension) (*process, *cdi.SpecRequest) {
	t.Helper()
	w.extend = func(p *claim.Plan) {
		if p.UID == "a" {
			p.Extend("first", map[string]int{"claim": 1})
			p.Results[0].Extend("first", map[string]int{"result": 2})
		}
	}
	p := w.process(t)
	last := &cdi.SpecRequest{}
	p.specs = requests{p.specs, last}
	p.Extensions = Extensions{first, extension{world: w, kind: "second"}, everywhere{"plain"}}
	p.run(p.options())
	return p, last
}

func (r requests) Build(request cdi.SpecRequest) (*specs.Spec, error) {
	*r.last = request
	return r.Specs.Build(request)
}

// TestExtensions_Claim_AskedIfConcerned: in the order of the record, its files, the spec; and back.
func TestExtensions_Claim_AskedIfConcerned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(2)
		p, asked := startExtended(t, w, extension{world: w, kind: "first"})
		r := p.mustPrepare(wants("a", device(0)))
		assert.Equal(t, []string{"put done a", "ensure first a", "write a", "written first a"}, w.events())
		assert.JSONEq(t, `{"claim":1}`, string(r.Extensions["first"]))
		assert.JSONEq(t, `{"result":2}`, string(r.Results[0].Extensions["first"]))
		assert.Equal(t, r, w.record(t, "a"))
		assert.Equal(t, map[string]string{r.CDI.Devices[0]: "+first"}, asked.Marks)
		assert.True(t, asked.Made("/run/first"))
		assert.False(t, asked.Made("/run/second"), "an extension that is not concerned makes nothing")
		require.Len(t, asked.Edits, 2)
		assert.Equal(t, []string{"first", "plain"}, []string{asked.Edits[0].Source, asked.Edits[1].Source}, "composed in their order")

		p.mustPrepare(wants("b", device(1)))
		assert.Equal(t, []string{"put done b", "write b"}, w.events(), "a claim that asks for nothing passes through none")
		assert.Len(t, asked.Edits, 1)
		assert.Nil(t, asked.Marks)
		require.NoError(t, p.Unprepare(t.Context(), "b"))
		assert.Equal(t, []string{"remove b", "delete b"}, w.events())

		require.NoError(t, p.Unprepare(t.Context(), "a"))
		assert.Equal(t, []string{"released first a", "remove a", "clear first a", "delete a"}, w.events())
		require.NoError(t, p.Unprepare(t.Context(), "gone"))
		assert.Equal(t, []string{
			"released first gone", "released second gone", "remove gone", "clear first gone", "clear second gone", "delete gone",
		}, w.events(), "what a claim without a record has is not known")
	})
}

// TestExtensions_Fail_ClaimNotPrepared: nothing of the claim is left, and undoing is tried until files are gone.
func TestExtensions_Fail_ClaimNotPrepared(t *testing.T) {
	for name, e := range map[string]extension{
		"edits": {noEdits: errors.New("it fails")}, "files": {noFiles: errors.New("it fails")},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(1)
				e.world, e.kind = w, "first"
				p, _ := startExtended(t, w, e)
				_, err := p.Prepare(t.Context(), wants("a", device(0)))
				require.ErrorContains(t, err, "it fails")
				assert.Empty(t, w.records)
				assert.Empty(t, w.specs)
			})
		})
	}
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p, _ := startExtended(t, w, extension{world: w, kind: "first", stays: errors.New("it stays")})
		p.mustPrepare(wants("a", device(0)))
		require.ErrorContains(t, p.Unprepare(t.Context(), "a"), "it stays")
		assert.NotNil(t, w.record(t, "a"))
	})
}

// TestExtensions_FilesOfGoneClaims_Collected: a file whose spec is gone is a leak, too.
func TestExtensions_FilesOfGoneClaims_Collected(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p, _ := startExtended(t, w, extension{world: w, kind: "first"})
		leaks := p.mustCollect(nil, true)
		names := []string{}
		for _, l := range leaks {
			names = append(names, l.String())
		}
		assert.Equal(t, []string{"CDI spec of claim left-first", "CDI spec of claim left-second"}, names)
		assert.Contains(t, w.events(), "clear second left-second")
	})
}

// TestExtension_NewerVersion_Pending: an older plugin keeps spec and record for a plugin that knows the extension; one whose service is switched
// off undoes the claim.
func TestExtension_NewerVersion_Pending(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p, _ := startExtended(t, w, extension{world: w, kind: "first"})
		p.mustPrepare(wants("a", device(0)))
		spec := w.specs["a"]

		older := w.start(t)
		r := older.mustPrepare(wants("a", device(0)), "the spec that is there is kept")
		assert.Equal(t, checkpoint.Done, r.State)
		assert.Equal(t, spec, w.specs["a"])
		const sentence = "removing the claim's effects: extension first is not supported here: it needs version test of the plugin, or a later one, on this node again"
		require.EqualError(t, older.Unprepare(t.Context(), "a"), sentence)
		time.Sleep(deferCleanupAfter)
		require.NoError(t, older.Unprepare(t.Context(), "a"), "the pod may go")
		assert.Equal(t, sentence, w.record(t, "a").PendingCleanup.Cause)
		assert.JSONEq(t, `{"claim":1}`, string(w.record(t, "a").Extensions["first"]))
		assert.Equal(t, spec, w.specs["a"])

		off := w.process(t)
		off.Extensions = Extensions{Inactive("first")}
		off.run(off.options())
		require.NoError(t, off.Recover(t.Context()))
		w.clean(t)
	})
}

// TestExtension_NewerVersionWithoutSpec_Refused: a spec without its edits must not start a container.
func TestExtension_NewerVersionWithoutSpec_Refused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(1)
		p, _ := startExtended(t, w, extension{world: w, kind: "first"})
		p.mustPrepare(wants("a", device(0)))
		delete(w.specs, "a")
		_, err := w.start(t).Prepare(t.Context(), wants("a", device(0)))
		require.ErrorContains(t, err, "making the CDI spec of claim default/claim-a: extension first is not supported here")
		assert.Empty(t, w.specs)
	})
}
