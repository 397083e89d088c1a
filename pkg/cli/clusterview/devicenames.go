package clusterview

// DeviceNames returns the names of the devices, in the order of the ResourceSlices, which it does not build.
func (p *Pool) DeviceNames() []string {
	var all []string
	for _, piece := range p.pieces {
		first := len(all)
		for i := range piece.shape.spec.Devices {
			all = append(all, piece.shape.spec.Devices[i].Name)
		}
		names := piece.names()
		for i := range piece.shape.places {
			if at := &piece.shape.places[i]; at.kind == placeDevice {
				device := &all[first+at.device]
				*device = names[at.token] + (*device)[nameLength(*device):]
			}
		}
	}
	return all
}
