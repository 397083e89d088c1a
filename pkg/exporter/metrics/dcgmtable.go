package metrics

import "math"

// dcgmRow is a field of DCGM.
type dcgmRow struct {
	name, help string
	kind       Kind
	// instance is set if the MIG devices of a GPU in MIG mode show the value, and the GPU does not.
	instance bool
	// extra is set if only a CSV selects the row.
	extra bool
	// of calculates the value from a device's values; without it the row is the last XID.
	of conversion
	// counted returns several values of a GPU, which differ in one label; of then only determines the sampled fields.
	counted func(*board) []labelledCount
}

// conversion converts Prism's values to DCGM's.
type conversion struct {
	// fields are added up and multiplied by scale; the result is rounded to digits.
	fields []Field
	scale  float64
	digits int
	// share divides the first field by the sum of the others.
	share bool
	// ber is set if the field is a bit error rate, packed by NVML.
	ber bool
}

// scaled converts one field to another unit.
func scaled(field Field, scale float64, digits int) conversion {
	return conversion{fields: []Field{field}, scale: scale, digits: digits}
}

// sum converts the sum of several fields to another unit.
func sum(scale float64, fields ...Field) conversion { return conversion{fields: fields, scale: scale} }

// usedShare is the ratio of memory in use to usable memory.
func usedShare() conversion {
	return conversion{fields: []Field{FieldMemoryUsed, FieldMemoryUsed, FieldMemoryFree}, scale: 1, digits: 6, share: true}
}

// value is NaN if a field is absent. GPM's graphics utilization of a MIG device has two names.
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

// identityLabel is a field of DCGM that labels every series.
type identityLabel struct {
	name string
	of   func(*Identity) string
}

// dcgmLabels are the labels that a CSV can select with type "label"; the first one is shown without a CSV.
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
	// Fields are the fields from which it is calculated; none for the last XID.
	Fields []Field
	// Instance is set if MIG devices show it, and a GPU in MIG mode does not. Default is set if it is shown without a CSV.
	Instance, Default bool
}

// DCGMFields are all supported fields.
func DCGMFields() []DCGMField {
	fields := make([]DCGMField, 0, len(dcgmTable))
	for i := range dcgmTable {
		r := &dcgmTable[i]
		fields = append(fields, DCGMField{r.name, r.help, r.kind, r.of.fields, r.instance, !r.extra})
	}
	return fields
}

// DCGMLabels are the fields that a CSV can select as labels; the first one is shown without a CSV.
func DCGMLabels() []string {
	names := make([]string, 0, len(dcgmLabels))
	for _, l := range dcgmLabels {
		names = append(names, l.name)
	}
	return names
}
