package metrics

import "math"

// dcgmRow is a field of DCGM that a value is shown as.
type dcgmRow struct {
	name, help string
	kind       Kind
	// instance says that a GPU in MIG mode has no such value, but its MIG devices have.
	instance bool
	// extra says that only a CSV chooses it.
	extra bool
	// of takes the value from those of a device; without one the row is the last XID.
	of conversion
	// counted returns several values of a GPU, which differ in a label; of only says then which fields are sampled.
	counted func(*board) []labelledCount
}

// conversion is what DCGM makes of Prism's values.
type conversion struct {
	// fields are added up and then multiplied by scale; the product is rounded to digits.
	fields []Field
	scale  float64
	digits int
	// share divides the first field by the sum of the others.
	share bool
	// ber: the field is a bit error rate as NVML packs it.
	ber bool
}

// scaled is one field in another unit.
func scaled(field Field, scale float64, digits int) conversion {
	return conversion{fields: []Field{field}, scale: scale, digits: digits}
}

// sum is several fields in another unit.
func sum(scale float64, fields ...Field) conversion { return conversion{fields: fields, scale: scale} }

// usedShare is the memory in use of what can be used.
func usedShare() conversion {
	return conversion{fields: []Field{FieldMemoryUsed, FieldMemoryUsed, FieldMemoryFree}, scale: 1, digits: 6, share: true}
}

// value is NaN where a field has none. GPM's graphics utilization of a MIG device has two names.
func (c *conversion) value(v *Values, mig bool) float64 {
	var first, total float64
	for i, f := range c.fields {
		one, ok := v.Get(f)
		if !ok && mig && f == FieldGraphicsActive {
			one, ok = v.Get(FieldUtilization)
		}
		switch {
		case !ok:
			return math.NaN()
		case i == 0:
			first = one
		default:
			total += one
		}
	}
	result := first + total
	if c.ber {
		return BitErrorRate(first)
	}
	if c.share {
		result = first / total
	}
	to := math.Pow10(c.digits)
	return math.Round(result*c.scale*to) / to
}

// identityLabel is a field of DCGM that is a label of every series.
type identityLabel struct {
	name string
	of   func(*Identity) string
}

// dcgmLabels are those that a CSV can choose with type "label"; the first one is there without a CSV.
var dcgmLabels = []identityLabel{
	{"DCGM_FI_DRIVER_VERSION", func(i *Identity) string { return i.DriverVersion }},
	{"DCGM_FI_CUDA_DRIVER_VERSION", func(i *Identity) string { return i.CUDAVersion }},
	{"DCGM_FI_DEV_BRAND", func(i *Identity) string { return i.Brand }},
	{"DCGM_FI_DEV_NAME", func(i *Identity) string { return i.Name }},
	{"DCGM_FI_DEV_SERIAL", func(i *Identity) string { return i.Serial }},
	{"DCGM_FI_DEV_UUID", func(i *Identity) string { return string(i.UUID) }},
	{"DCGM_FI_DEV_VBIOS_VERSION", func(i *Identity) string { return i.VBIOS }},
	{"DCGM_FI_DEV_INFOROM_IMAGE_VER", func(i *Identity) string { return i.InfoROM }},
	{"DCGM_FI_DEV_OEM_INFOROM_VER", func(i *Identity) string { return i.InfoROMOEM }},
	{"DCGM_FI_DEV_ECC_INFOROM_VER", func(i *Identity) string { return i.InfoROMECC }},
	{"DCGM_FI_DEV_POWER_INFOROM_VER", func(i *Identity) string { return i.InfoROMPower }},
	{"DCGM_FI_NVML_VERSION", func(i *Identity) string { return i.NVMLVersion }},
}

// DCGMField is a field of DCGM as the documentation lists it.
type DCGMField struct {
	Name, Help string
	Kind       Kind
	// Fields are those that it is made of; none for the last XID.
	Fields []Field
	// Instance says that MIG devices have it, and a GPU in MIG mode has not. Default says that it is shown without a CSV.
	Instance, Default bool
}

// DCGMFields are those that a page can have.
func DCGMFields() []DCGMField {
	fields := make([]DCGMField, 0, len(dcgmTable))
	for i := range dcgmTable {
		r := &dcgmTable[i]
		fields = append(fields, DCGMField{r.name, r.help, r.kind, r.of.fields, r.instance, !r.extra})
	}
	return fields
}

// DCGMLabels are the fields that a CSV can choose as labels; the first one is there without a CSV.
func DCGMLabels() []string {
	names := make([]string, 0, len(dcgmLabels))
	for _, l := range dcgmLabels {
		names = append(names, l.name)
	}
	return names
}
