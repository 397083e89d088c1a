package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/test/simgpu/model"
)

// knob is a setting of a GPU that outlives the process that changed it. Zero is the default of the driver.
type knob int

const (
	accounting knob = iota
	persistence
)

// symbols are the NVML functions that change the settings.
var symbols = map[knob]string{accounting: "nvmlDeviceSetAccountingMode", persistence: "nvmlDeviceSetPersistenceMode"}

// hardware reads and changes settings. It returns the same errors as the product's adapter.
type hardware interface {
	get(ctx context.Context, id gpu.UUID, k knob) (uint32, error)
	set(ctx context.Context, id gpu.UUID, k knob, value uint32) error
}

// modelled uses the model of this process.
type modelled struct{ node *model.Node }

// callTime bounds one call of the driver, as the product's adapter does.
const callTime = 50 * time.Millisecond

func (h modelled) get(ctx context.Context, id gpu.UUID, k knob) (value uint32, err error) {
	session, handle, _, err := h.open(ctx, id)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	read := session.Accounting
	if k == persistence {
		read = session.Persistence
	}
	on, err := read(handle)
	if on {
		value = 1
	}
	return value, translated(err)
}

func (h modelled) set(ctx context.Context, id gpu.UUID, k knob, value uint32) error {
	session, handle, ordinal, err := h.open(ctx, id)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, gpu.ErrTimeout)
	defer cancel()
	if err := h.node.Faults.Pass(ctx, symbols[k], ordinal); err != nil {
		return translated(err)
	}
	if k == persistence {
		return translated(session.SetPersistence(handle, value != 0, true))
	}
	return translated(session.SetAccounting(handle, value != 0, true))
}

// open opens the driver for one GPU.
func (h modelled) open(ctx context.Context, id gpu.UUID) (*model.Session, model.Handle, int, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, 0, err
	}
	for _, identity := range h.node.Identities() {
		if identity.UUID != string(id) {
			continue
		}
		session, err := h.node.Open("", []int{identity.Minor})
		if err != nil {
			return nil, 0, 0, translated(err)
		}
		handle, err := session.ByUUID(identity.UUID)
		return session, handle, identity.Ordinal, translated(err)
	}
	return nil, 0, 0, fmt.Errorf("GPU %s: %w", id, gpu.ErrNotFound)
}

// translated converts the model's codes like the product's adapter.
func translated(err error) error {
	for code, kind := range map[model.Return]error{
		model.DriverNotLoaded: gpu.ErrDriverNotLoaded, model.InUse: gpu.ErrInUse, model.Timeout: gpu.ErrTimeout, model.GPUIsLost: gpu.ErrLost,
	} {
		if errors.Is(err, code) {
			return fmt.Errorf("%w (%w)", kind, err)
		}
	}
	return err
}

// library uses the driver's library. It is initialised for each call, because a reloaded driver invalidates earlier initialisations.
type library struct{ nvml nvml.Interface }

func (h library) get(ctx context.Context, id gpu.UUID, k knob) (value uint32, err error) {
	err = h.with(ctx, id, func(device nvml.Device) nvml.Return {
		if k == persistence {
			on, ret := device.GetPersistenceMode()
			value = uint32(on)
			return ret
		}
		on, ret := device.GetAccountingMode()
		value = uint32(on)
		return ret
	})
	return value, err
}

func (h library) set(ctx context.Context, id gpu.UUID, k knob, value uint32) error {
	return h.with(ctx, id, func(device nvml.Device) nvml.Return {
		if k == persistence {
			return device.SetPersistenceMode(nvml.EnableState(value))
		}
		return device.SetAccountingMode(nvml.EnableState(value))
	})
}

func (h library) with(ctx context.Context, id gpu.UUID, call func(nvml.Device) nvml.Return) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ret := h.nvml.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("opening the driver: %w", ret)
	}
	defer func() { _ = h.nvml.Shutdown() }()
	device, ret := h.nvml.DeviceGetHandleByUUID(string(id))
	if ret == nvml.SUCCESS {
		ret = call(device)
	}
	if ret != nvml.SUCCESS {
		return fmt.Errorf("GPU %s: %w", id, ret)
	}
	return nil
}
