package metrics_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/exporter/metrics"
)

var update = flag.Bool("update", false, "write the golden pages again")

func TestPages_Node_AreGolden(t *testing.T) {
	chosen, problems, err := metrics.ParseCSV([]byte(`# Format
DCGM_FI_DEV_GPU_TEMP, gauge, How warm it is
DCGM_FI_DEV_FB_USED, gauge, "Used, in MiB"
DCGM_FI_DEV_SERIAL, label, Serial number
DCGM_FI_DEV_BAR1_USED, gauge, BAR1
DCGM_EXP_P2P_STATUS, gauge, Links
`))
	require.NoError(t, err)
	require.Len(t, problems, 1)
	j := metrics.Join(node())
	for name, write := range map[string]func(*bytes.Buffer) error{
		"native.openmetrics": func(b *bytes.Buffer) error { return j.Native(b, true) },
		"native.txt":         func(b *bytes.Buffer) error { return j.Native(b, false) },
		"dcgm.txt":           func(b *bytes.Buffer) error { return j.DCGM(b, nil) },
		"dcgm-csv.txt":       func(b *bytes.Buffer) error { return j.DCGM(b, chosen) },
		"claim.prom": func(b *bytes.Buffer) error {
			b.Write(j.Claim("web-1-uid"))
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var page bytes.Buffer
			require.NoError(t, write(&page))
			file := filepath.Join("testdata", name)
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(file, page.Bytes(), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), page.String(), "go test ./pkg/exporter/metrics -update writes it again")
		})
	}
}
