package reports

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// TestList_AnotherNamespaceAsksHungNodes_NotWaitedFor: the lists of a namespace use only a part of the slots, and the cluster's controllers
// use their own.
func TestList_AnotherNamespaceAsksHungNodes_NotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t)
		p.standIn("n0:443", func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, map[string]any{"reports": []report.Report{}})
		})
		endpoints := []Endpoint{{Node: "n0", Address: "n0:443"}}
		for i := range 4 * asked {
			endpoints = append(endpoints, Endpoint{Node: fmt.Sprintf("hung%d", i), Address: fmt.Sprintf("hung%d:443", i)})
		}
		handler := (&Server{Nodes: p.asking(endpoints...), Users: headers{}, Access: all{}}).Handler()
		ended := make(chan int, 2*namespaceLists)
		ctx, stop := context.WithCancel(t.Context())
		for i := range namespaceLists {
			go func() {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, in("team"), http.NoBody)
				r.Header.Set("X-Remote-User", fmt.Sprint("user", i))
				response := httptest.NewRecorder()
				handler.ServeHTTP(response, r)
				ended <- response.Code
			}()
		}
		synctest.Wait()
		began := time.Now()
		for _, by := range []string{"bob", namespaceController} {
			assert.Equal(t, http.StatusOK, request(handler, http.MethodGet, by, in("other")+"?fieldSelector=spec.node=n0").Code)
		}
		assert.Zero(t, time.Since(began), "no node that hangs was waited for")
		stop()
		for range namespaceLists {
			<-ended
		}
	})
}

// TestSlots_AllTaken_ControllersHaveTheirs: waiting ends with its request.
func TestSlots_AllTaken_ControllersHaveTheirs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // an endless wait ends the test
		s := newSlots()
		var given []func()
		take := func(at line, places int) {
			for range places {
				give, err := s.take(t.Context(), at)
				require.NoError(t, err)
				given = append(given, give)
			}
		}
		refused := func(at line) {
			ended, stop := context.WithCancel(t.Context())
			stop()
			_, err := s.take(ended, at)
			require.ErrorIs(t, err, context.Canceled)
		}
		take(line{namespace: "a"}, namespaceAsked)
		refused(line{namespace: "a"})
		take(line{namespace: "b"}, asked-namespaceAsked)
		refused(line{namespace: "c"})
		take(line{system: true}, systemAsked)
		for _, give := range given {
			give()
		}
		assert.Empty(t, s.lines.queues)
		take(line{namespace: "c"}, namespaceAsked)
	})
}
