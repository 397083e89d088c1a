package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCountSeries_Page_MostOfOneDevice(t *testing.T) {
	const page = `# HELP prism_gpu_up Whether.
prism_gpu_up{gpu_uuid="GPU-0"} 1
prism_gpu_up{gpu_uuid="GPU-1"} 1
prism_gpu_power_watts{gpu_uuid="GPU-1"} 70
prism_mig_info{gpu_uuid="GPU-0",mig_uuid="MIG-0"} 1
prism_mig_info{gpu_uuid="GPU-0",mig_uuid="MIG-1"} 1
prism_gpu_allocation_info{namespace="a",pod="b",container="c",gpu_uuid="GPU-0",mig_uuid="MIG-0",claim="with \"}"} 1
prism_container_gpu_memory_used_bytes{namespace="a",pod="b",container="c",gpu_uuid="GPU-0",mig_uuid="MIG-0"} 1
prism_container_gpu_memory_used_bytes{namespace="a",pod="b",container="d",gpu_uuid="GPU-0",mig_uuid="MIG-0"} 1
prism_exporter_build_info{version="dev"} 1
`
	assert.Equal(t, seriesCounts{all: 9, gpu: 2, mig: 1, container: 2}, countSeries(page))
}
