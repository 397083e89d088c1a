package bench

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadClaims_OtherProcess_HasLittleMemory is both processes: the one that reads has the API server's address as its argument.
func TestReadClaims_OtherProcess_HasLittleMemory(t *testing.T) {
	if server := flag.Arg(0); server != "" {
		require.NoError(t, ReadClaims(t.Context(), server, os.Stdout))
		return
	}
	list, err := ListClaims(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	require.NoError(t, err)
	t.Logf("%d claims, %s in all, read with a peak of %s", list.Claims, mebibytes(list.Bytes), mebibytes(list.Peak))
	assert.NoError(t, Problems(list.rows()...))
	assert.Greater(t, list.Bytes, int64(1<<30))
	assert.Less(t, list.Bytes, int64(list.Claims)*3<<19, "an object is no larger than 1.5 MiB")
}

func TestClaimList_LargerPeak_IsAProblem(t *testing.T) {
	t.Parallel()
	assert.EqualError(t, Problems(ClaimList{Claims: 1000, Peak: 300 << 20}.rows()...),
		"peak memory without files of the process that reads them: 300.0 MiB, the budget is ≤ 64.0 MiB")
}
