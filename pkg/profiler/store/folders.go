package store

// Folders are the host's directories of a claim that its containers have.
type Folders struct {
	// Plan is read by containers, Inbox written.
	Plan, Inbox string
}

// Folders of a claim; Prepare makes them.
func (s *Store) Folders(claimUID string) Folders {
	return Folders{Plan: s.path(claimUID, planDir), Inbox: s.path(claimUID, inboxDir)}
}
