/*
 * pymodule.c - shmcache._hot: the module, its exceptions, its types.
 *
 * The Python interface (View and ListView: pyview.c; writing: pyput.c)
 *
 *   class Reader:                    # final, tracked by the collector
 *       def __init__(self, address: int, owner: object,
 *                    on_idle: Callable[[], object] | None = None, opened: Opened = ...)
 *           # address of a struct shmc_reader; owner and opened keep it and its maps; on_idle() is
 *           # called once, when the Reader is closed and its last Root, view, Delta and iterator is
 *           # gone
 *       def root(self) -> Root                              # ClosedError, ForkedError
 *       def take(self, cursor: int, max: int, resources: Iterable[int] | None = None,
 *                shard: tuple[int, int] | None = None) -> tuple[list[Delta], int]   # Lapped
 *       def release(self) -> None                           # drops the root kept inside
 *       def close(self) -> None                             # idempotent
 *       latest: int; closed: bool; forked: bool; spent: bool; roots: int; owner: object | None
 *
 *   class Root:                      # one pinned generation; no public constructor
 *       generation: int; head: int; tail: int; instance: int; reader: Reader; valid: bool
 *       def names(self) -> list[str]                        # by id
 *       def record(self, id: int) -> dict   # name, settings, state, reason, since_ns, version,
 *                                 # generation, count, unbroken, breaks, listed,
 *                                 # indices: list of (name, settings, count)
 *       def count(self, id: int) -> int
 *       def get(self, id: int, key: str, default=None) -> View
 *       def scan(self, id, index: int | None = None, start: str | None = None,
 *                stop: str | None = None, prefix: str | None = None, after=None,
 *                limit: int = 0, want: 'items' | 'keys' | 'values' = 'items',
 *                where: Where | None = None) -> list       # limit counts what passes where
 *           # primary tree: start <= key < stop; after: a key (exclusive)
 *           #   items (key, View), keys str, values View
 *           # index: start, stop and prefix apply to the value; after: (value, key) (exclusive)
 *           #   items (value, key, View), keys (value, key), values View
 *       def by_index(self, id, index: int, value: str, after: str | None = None, limit: int = 0,
 *                    want='values', where=None, prefix: str | None = None) -> list
 *           # prefix of the keys; values View, keys str, items (key, View)
 *       def scan_json(self, form, id, ...), by_index_json(self, form, id, ...)  # as those two, but
 *                                 # -> (text, count, last key | None, more: bool), see pypage.c
 *       def index_values(self, id, index: int, after: str | None = None, limit: int = 0,
 *                        prefix: str | None = None) -> list[str]
 *       def take(self, cursor, max, resources=None, shard=None) -> tuple[list[Delta], int]
 *       def diff(self, id: int, old: Root) -> tuple[list, list, list]   # in time proportional to it
 *           # added (key, View), modified (key, old, new), deleted (key, View), each in key order
 *       # LookupError: no such id or index. StaleObjectError once the pin was revoked.
 *
 *   class Resource:                  # may be subclassed; call __init__
 *       def __init__(self, reader: Reader, id: int, root: Root | None = None)
 *       def get(self, key: str, default=None) -> View
 *       __getitem__ (KeyError), __contains__, __len__, __iter__ (keys)
 *       def keys(self), def values(self), def items(self)   # iterators over one root
 *       def scan(...), by_index(...), index_values(...)     # as Root's, without id
 *       def record(self) -> dict
 *       def contact(self) -> dict           # the fields of struct shmc_note, as they are now
 *       name: str; version: str | None; state: int; generation: int
 *       reader: Reader; root: Root | None; id: int
 *       # without a root: always the latest; StaleObjectError is retried inside
 *       # a key that is not a str is TypeError
 *
 *   class Where:                     # a selector, compiled; immutable to Python
 *       def __init__(self, groups: tuple[tuple[head, tests], ...], shard: tuple[int, int] | None,
 *                    hashes: tuple[member, tuple[tuple[first, last], ...]] | None)
 *           # head: tuple of keys that lead to a value; tests: tuple of (path, operator, values)
 *           #   about that: in, notin, exists, !, gt, lt of the label path[0]; =, != of the values
 *           #   that an index of the path (None: [*]) would hold
 *
 *   class Delta:                     # no public constructor
 *       number, generation, resource, shard: int; root: Root
 *       kind: 'ADDED' | 'MODIFIED' | 'DELETED' | 'RELIST'; unknown_final_state: bool
 *       key: str | None; version: str | None; old: View | None; new: View | None
 *       recreated: bool                # MODIFIED, and the uids of old and new differ
 *       # made on first access: StaleObjectError is possible there
 *
 *   class Delivered:                 # the objects that handlers know: pydelivered.c
 *       def advance(self, root: Root, id: int) -> None
 *       def difference(self, since, bit=-1, first=0, last=2**64-1, after=None, upto=None) -> list
 *           # (key, alive, known, uid, version), sorted
 *       def set_bit(self, key, bit, position), clear_bit(self, key, bit), free_bit(self, bit)
 *       def trim(self, spans: list[tuple[int, int]], tail: int)
 *       position, offset, instance, ended, scans, bytes: int; len() is the number of known objects
 *
 *   Lapped has position (= root.head) and root: take the difference against that root, then
 *   continue from its head. resources: ids; a RELIST delta passes every shard.
 */
#include <errno.h>

#include "python/write/pyentries.h"
#include "python/wire/pywire.h"
#include "python/read/pyread.h"
#include "python/tables/pytables.h"

struct shmc_hot_errors shmc_hot_errors;

static PyObject *exception_of(enum shmc_status status)
{
    switch (status) {
    case SHMC_STALE:
        return shmc_hot_errors.stale;
    case SHMC_FULL:
    case SHMC_NO_SPACE:
        return shmc_hot_errors.full;
    case SHMC_BUSY:
        return shmc_hot_errors.busy;
    case SHMC_FENCED:
        return shmc_hot_errors.fenced;
    case SHMC_CORRUPT:
        return shmc_hot_errors.corrupt;
    case SHMC_LIMIT:
        return shmc_hot_errors.limit;
    case SHMC_FORKED:
        return shmc_hot_errors.forked;
    case SHMC_CLOSED:
        return shmc_hot_errors.closed;
    case SHMC_NOT_FOUND:
        return PyExc_LookupError;
    case SHMC_INVALID:
        return PyExc_ValueError;
    default:
        return shmc_hot_errors.base;
    }
}

PyObject *shmc_hot_raise(enum shmc_status status, const char *doing)
{
    if (status == SHMC_NO_MEMORY)
        return PyErr_NoMemory();
    if (status == SHMC_SYSTEM) {
        const int number = errno;
        PyObject *arguments = Py_BuildValue("(iN)", number,
                                            PyUnicode_FromFormat("%s: %s", doing,
                                                                 strerror(number)));
        if (arguments != NULL)
            PyErr_SetObject(PyExc_OSError, arguments);
        Py_XDECREF(arguments);
        return NULL;
    }
    PyErr_Format(exception_of(status), "%s: %s", doing, shmc_status_text(status));
    return NULL;
}

static int fetch_errors(void)
{
    const struct {
        const char *name;
        PyObject **to;
    } wanted[] = {
        {"ShmCacheError", &shmc_hot_errors.base},
        {"ClosedError", &shmc_hot_errors.closed},
        {"ForkedError", &shmc_hot_errors.forked},
        {"StaleObjectError", &shmc_hot_errors.stale},
        {"CorruptSegment", &shmc_hot_errors.corrupt},
        {"CacheFull", &shmc_hot_errors.full},
        {"UnsupportedValue", &shmc_hot_errors.unsupported},
        {"LimitExceeded", &shmc_hot_errors.limit},
        {"FencedError", &shmc_hot_errors.fenced},
        {"BusyError", &shmc_hot_errors.busy},
        {"QueueShutDown", &shmc_hot_errors.shut_down},
        {"Lapped", &shmc_hot_lapped},
    };
    PyObject *errors = PyImport_ImportModule("shmcache.errors");

    if (errors == NULL)
        return -1;
    int result = 0;
    for (size_t i = 0; result == 0 && i < sizeof wanted / sizeof wanted[0]; i++) {
        Py_XSETREF(*wanted[i].to, PyObject_GetAttrString(errors, wanted[i].name));
        result = *wanted[i].to != NULL ? 0 : -1;
    }
    Py_DECREF(errors);
    return result;
}

int shmc_pyread_init(PyObject *module)
{
    if (PyModule_AddType(module, &shmc_pyopened_type) < 0 ||
        PyModule_AddType(module, &shmc_pyreader_type) < 0 ||
        PyModule_AddType(module, &shmc_pyroot_type) < 0 ||
        PyModule_AddType(module, &shmc_pyresource_type) < 0 ||
        PyModule_AddType(module, &shmc_pydelta_type) < 0 ||
        PyModule_AddType(module, &shmc_pywhere_type) < 0 ||
        PyModule_AddType(module, &shmc_pydelivered_type) < 0 ||
        PyModule_AddType(module, &shmc_pyarrow_type) < 0 ||
        PyModule_AddType(module, &shmc_pygroups_type) < 0 || PyType_Ready(&shmc_pyiter_type) < 0)
        return -1;
    return shmc_pydelta_init(module);
}

/* Single-phase: the types are static, so one interpreter per process has them (HOT4). */
static struct PyModuleDef hot_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "shmcache._hot",
    .m_doc = "The hot path: look-ups, scans, views, batches of deltas, dicts into blocks.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__hot(void); /* Python finds it by name */

/* Types and exceptions are one set for the process (HOT4): another interpreter would get those of
 * the first. */
static int check_interpreter(void)
{
    if (PyInterpreterState_Get() == PyInterpreterState_Main())
        return 0;
    PyErr_SetString(PyExc_ImportError,
                    "shmcache can be imported in the main interpreter alone, "
                    "not in a subinterpreter");
    return -1;
}

PyMODINIT_FUNC PyInit__hot(void)
{
    if (check_interpreter() < 0 || fetch_errors() < 0 || shmc_entries_ready() < 0)
        return NULL;
    PyObject *module = PyModule_Create(&hot_module);
    if (module == NULL)
        return NULL;
    if (shmc_pyview_init(module) < 0 || shmc_pymodel_init(module) < 0 ||
        shmc_pyread_init(module) < 0 ||
        shmc_pyqueue_init(module) < 0 || shmc_pywrite_init(module) < 0 || shmc_pyparse_init(module) < 0)
        Py_CLEAR(module);
    if (module != NULL &&
        PyModule_AddObjectRef(module, "defended", SHMC_IS_DEFENDED ? Py_True : Py_False) < 0)
        Py_CLEAR(module);
    return module;
}
