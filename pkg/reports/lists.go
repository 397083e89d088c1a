package reports

import "sync"

const (
	// maxLists bounds the memory of all lists, of which each takes maxCost and aheadCost at most; userLists keeps one user from taking all.
	maxLists  = 4
	userLists = 2
)

// lists counts the lists that are answered.
type lists struct {
	mu   sync.Mutex
	all  int
	user map[string]int
}

// enter counts one of a user; false: there are as many as there may be.
func (l *lists) enter(user string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxLists || l.user[user] >= userLists {
		return false
	}
	if l.user == nil {
		l.user = map[string]int{}
	}
	l.all++
	l.user[user]++
	return true
}

func (l *lists) leave(user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.user[user]--; l.user[user] == 0 {
		delete(l.user, user)
	}
}
