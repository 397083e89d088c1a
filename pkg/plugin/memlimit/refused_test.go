package memlimit

import (
	"encoding/json"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/hook/protocol"
)

// TestServer_Refusal_ReportedOfPreparedClaimAlone, and nothing is limited.
func TestServer_Refusal_ReportedOfPreparedClaimAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		claim  string
		change func(w *world)
		want   []string
	}{
		"prepared":          {claim: "uid", want: []string{"ns/claim", share, "why"}},
		"unknown":           {claim: "other"},
		"a claim to undo":   {claim: "uid", change: func(w *world) { w.record.State = checkpoint.Releasing }},
		"not prepared yet":  {claim: "uid", change: func(w *world) { w.record.State = checkpoint.Intent }},
		"claim without UID": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if c.change != nil {
				c.change(w)
			}
			var reported []string
			w.server.Refused = func(r *checkpoint.Record, device, why string) {
				reported = append(reported, r.Claim.Namespace+"/"+r.Claim.Name, device, why)
			}
			stop := w.serve(t)
			connection, err := net.Dial("unix", w.server.Socket)
			require.NoError(t, err)
			line, err := json.Marshal(protocol.Refusal{LimitedDevice: protocol.LimitedDevice{Claim: c.claim, Device: share}, Refused: "why"})
			require.NoError(t, err)
			_, err = connection.Write(append(line, '\n'))
			require.NoError(t, err)
			answer, err := io.ReadAll(connection) // until it is dealt with
			require.NoError(t, err)
			assert.Empty(t, answer)
			stop()
			assert.Equal(t, c.want, reported)
			assert.Empty(t, w.driver.limits)
		})
	}
}
