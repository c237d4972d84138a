"""The GPU of this machine, asked through the CUDA driver."""

from __future__ import annotations

from dfc.plugins.libraries import MissingLibraryError


def compute_capability() -> str:
    """Return the first GPU's compute capability, such as "9.0".

    Raises:
        MissingLibraryError: cuda-python, the driver or a GPU is missing.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise MissingLibraryError(f"cuda-python is missing ({error}); install dfc with the extra 'tensorrt'") from error
    try:
        _check(driver.cuInit(0))
        (device,) = _check(driver.cuDeviceGet(0))
        attribute = driver.CUdevice_attribute
        major, minor = (
            _check(driver.cuDeviceGetAttribute(which, device))[0]
            for which in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
    # Without a driver cuda-python raises RuntimeError where it would return an error code.
    except RuntimeError as error:
        raise MissingLibraryError(f"no GPU can be used: {error}") from error
    return f"{major}.{minor}"


def device_name() -> str:
    """Return the first GPU's name.

    Raises:
        MissingLibraryError: cuda-python, the driver or a GPU is missing.
    """
    try:
        from cuda.bindings import driver

        _check(driver.cuInit(0))
        (device,) = _check(driver.cuDeviceGet(0))
        (name,) = _check(driver.cuDeviceGetName(256, device))
    except (ImportError, RuntimeError) as error:
        raise MissingLibraryError(f"no GPU can be used: {error}") from error
    assert isinstance(name, bytes)
    return name.split(b"\0")[0].decode()


def _check(returned: tuple[object, ...]) -> tuple[object, ...]:
    status, *values = returned
    if int(status) != 0:  # type: ignore[call-overload]
        raise RuntimeError(f"the CUDA driver answers {status}")
    return tuple(values)
