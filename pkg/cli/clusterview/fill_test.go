package clusterview_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fill sets all fields of an object to distinct values; n counts them.
func fill(t *testing.T, object any, n *int) {
	t.Helper()
	fillValue(t, reflect.ValueOf(object).Elem(), n)
}

func fillValue(t *testing.T, v reflect.Value, n *int) {
	t.Helper()
	*n++
	switch v.Interface().(type) {
	case resource.Quantity:
		v.Set(reflect.ValueOf(*resource.NewQuantity(int64(*n), resource.DecimalSI)))
		return
	case metav1.Time:
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(int64(*n), 0))))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fillValue(t, v.Field(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fillValue(t, v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fillValue(t, key, n)
			fillValue(t, value, n)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("gpu-", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64, reflect.Int32, reflect.Int:
		v.SetInt(int64(*n))
	default:
		require.Fail(t, "unknown kind", "%s", v.Type())
	}
}
