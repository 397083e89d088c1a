package metrics

// FieldSet is a set of fields. The zero value is empty.
type FieldSet [(int(FieldCount) + 63) / 64]uint64

// NewFieldSet returns the set of the fields.
func NewFieldSet(fields ...Field) FieldSet {
	var s FieldSet
	s.Add(fields...)
	return s
}

// Add adds fields.
func (s *FieldSet) Add(fields ...Field) {
	for _, f := range fields {
		s[f/64] |= 1 << (f % 64)
	}
}

// AddSet adds all fields of another set.
func (s *FieldSet) AddSet(other FieldSet) {
	for i := range s {
		s[i] |= other[i]
	}
}

// Has reports whether the field is in the set.
func (s FieldSet) Has(f Field) bool { return s[f/64]&(1<<(f%64)) != 0 }

// Meets reports whether a field is in both sets.
func (s FieldSet) Meets(other FieldSet) bool {
	for i := range s {
		if s[i]&other[i] != 0 {
			return true
		}
	}
	return false
}
