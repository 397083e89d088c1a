package abi

import "github.com/prism-gpu/prism/test/simgpu/model"

// Functions that the simulated libcuda calls. None is exported.
var cudaSymbols = []Symbol{
	{Name: "cudaInit", Place: Hidden, Params: initParams, answer: begin},
	hidden("cudaCreateContext", createContext, u32("role"), u64("server"), u64("limit"), outU64("context")),
	hidden("cudaDestroyContext", destroyContext, u64("context")),
	hidden("cudaEndClients", endClients, u64("server"), u32("pid")),
	hidden("cudaFault", fault, u64("context")),
	hidden("cudaServerFaulted", serverFaulted, u64("server"), outU32("faulted")),
	hidden("cudaAllocate", allocate, u64("context"), u64("bytes"), outU64("address")),
	hidden("cudaFree", release, u64("context"), u64("address")),
	hidden("cudaMemory", contextMemory, u64("context"), outU64("free"), outU64("total")),
	hidden("cudaWork", work, u64("context"), u32("share")),
	hidden("cudaMultiprocessors", multiprocessors, outU32("count")),
}

var computeProcesses, mpsProcesses = runningProcesses(false), runningProcesses(true)

func createContext(c *call) error {
	role := model.ContextRole(c.u32(1))
	if role > model.MPSClientContext {
		return model.InvalidArgument
	}
	id, err := c.session.CreateContext(c.device(), model.ContextSpec{
		PID: c.caller.PID, Role: role, Server: c.u64(2), Limit: c.u64(3), Cgroups: cgroups(c.caller.PID),
	})
	if err != nil {
		return err
	}
	return c.putU64(4, id)
}

func destroyContext(c *call) error { return c.session.DestroyContext(c.device(), c.u64(1)) }

func endClients(c *call) error {
	return c.session.EndClients(c.device(), c.u64(1), int(c.u32(2)))
}

func fault(c *call) error { return c.session.Fault(c.device(), c.u64(1)) }

func serverFaulted(c *call) error {
	faulted, err := c.session.ServerFaulted(c.device(), c.u64(1))
	if err != nil {
		return err
	}
	return c.putU32(2, flag(faulted))
}

func allocate(c *call) error {
	address, err := c.session.Allocate(c.device(), c.u64(1), c.u64(2))
	if err != nil {
		return err
	}
	return c.putU64(3, address)
}

func release(c *call) error { return c.session.Release(c.device(), c.u64(1), c.u64(2)) }

// work receives hundredths of a percent.
func work(c *call) error {
	return c.session.SetWork(c.device(), c.u64(1), float64(c.u32(2))/100)
}

func contextMemory(c *call) error {
	free, total, err := c.session.ContextMemoryInfo(c.device(), c.u64(1))
	if err != nil {
		return err
	}
	c.outputs[2] = record{}.u64(free)
	return c.putU64(3, total)
}

func multiprocessors(c *call) error {
	count, err := c.session.Multiprocessors(c.device())
	if err != nil {
		return err
	}
	return c.putU32(1, uint32(count))
}

// runningProcesses answers with the processes that have their own context, or with mps the clients of MPS servers.
func runningProcesses(mps bool) answer {
	return func(c *call) error {
		list, err := c.session.Processes(c.device(), mps)
		if err != nil {
			return err
		}
		return c.putProcesses(list)
	}
}

// putProcesses writes the processes that the caller can see. It writes the first version of the struct if the caller's buffer is large
// enough for it.
func (c *call) putProcesses(all []model.Process) error {
	var list []model.Process
	for _, p := range all {
		if pid, seen := c.processID(p.PID); seen {
			p.PID = pid
			list = append(list, p)
		}
	}
	c.outputs[1] = record{}.u32(uint32(len(list)))
	room := int(c.u32(1))
	if len(list) > room {
		return model.InsufficientSize
	}
	var array record
	for _, p := range list {
		array = array.u32(uint32(p.PID), 0).u64(p.Memory)
		if c.args[2].Size >= room*processSize {
			array = array.u32(p.GPUInstance, p.ComputeInstance)
		}
	}
	return c.put(2, array)
}
