/*
 * pyparse.c - what comes from the wire: the decoders' types.
 */
#include "pyparse.h"

int shmc_pyparse_init(PyObject *module)
{
    return PyModule_AddType(module, &shmc_pyframes_type) < 0 ||
                   PyModule_AddType(module, &shmc_pyitems_type) < 0 ||
                   PyModule_AddType(module, &shmc_pychunks_type) < 0
               ? -1
               : 0;
}
