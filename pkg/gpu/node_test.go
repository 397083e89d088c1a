package gpu

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRecall_Faults_AreTheGPUsThatAreMissing(t *testing.T) {
	t.Parallel()
	board := func(uuid UUID, index int) GPU {
		return GPU{UUID: uuid, Index: index, PCI: PCI{BusID: "bus of " + string(uuid)}}
	}
	lost := errors.New("lost")
	fault := func(index int, uuid UUID, bus string) Fault {
		return Fault{Index: index, UUID: uuid, BusID: bus, Err: lost}
	}
	a, b, c := board("a", 0), board("b", 1), board("c", 2)
	for name, test := range map[string]struct {
		missing      []GPU
		faults, want []Fault
	}{
		"none":                       {[]GPU{a}, nil, nil},
		"never seen":                 {nil, []Fault{fault(0, "", "")}, []Fault{fault(0, "", "")}},
		"by UUID":                    {[]GPU{a, b}, []Fault{fault(0, "b", "")}, []Fault{fault(0, "b", "bus of b")}},
		"by address":                 {[]GPU{a, b}, []Fault{fault(0, "", "bus of b")}, []Fault{fault(0, "b", "bus of b")}},
		"another GPU in its place":   {[]GPU{a}, []Fault{fault(0, "z", "bus of a")}, []Fault{fault(0, "z", "bus of a")}},
		"the only one":               {[]GPU{b}, []Fault{fault(1, "", "")}, []Fault{fault(1, "b", "bus of b")}},
		"the only one, moved":        {[]GPU{c}, []Fault{fault(1, "", "")}, []Fault{fault(1, "c", "bus of c")}},
		"each by index":              {[]GPU{c, a}, []Fault{fault(0, "", ""), fault(2, "", "")}, []Fault{fault(0, "a", "bus of a"), fault(2, "c", "bus of c")}},
		"one by index, one is left":  {[]GPU{a, c}, []Fault{fault(1, "", ""), fault(0, "", "")}, []Fault{fault(1, "c", "bus of c"), fault(0, "a", "bus of a")}},
		"one by UUID, one is left":   {[]GPU{a, b}, []Fault{fault(0, "b", ""), fault(1, "", "")}, []Fault{fault(0, "b", "bus of b"), fault(1, "a", "bus of a")}},
		"more are missing":           {[]GPU{a, b}, []Fault{fault(1, "", "")}, []Fault{fault(1, "", "")}},
		"more than are missing":      {[]GPU{a}, []Fault{fault(0, "", ""), fault(1, "", "")}, []Fault{fault(0, "", ""), fault(1, "", "")}},
		"two at other indices":       {[]GPU{b, c}, []Fault{fault(0, "", ""), fault(3, "", "")}, []Fault{fault(0, "", ""), fault(3, "", "")}},
		"another address is another": {[]GPU{a}, []Fault{fault(0, "", "bus of z")}, []Fault{fault(0, "", "bus of z")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := append([]Fault(nil), test.faults...)
			assert.Equal(t, test.want, Recall(test.faults, test.missing))
			assert.Equal(t, before, test.faults, "not written to")
		})
	}
}
