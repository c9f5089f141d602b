/*
 * pyprompt.c - views at a prompt: names of objects, dir(), notebooks; and in frameworks.
 *
 * Rare, so written with Python's own operations. Layout (trees, tables) and the needs of frameworks
 * are in Python: shmcache/prompt.py, shmcache/models/schema.py.
 */
#include "python/pyhot.h"

/* shmcache.<module>.<function>(*args); steals args. */
static PyObject *call(const char *name, const char *function, PyObject *args)
{
    PyObject *module = args == NULL ? NULL : PyImport_ImportModule(name);
    PyObject *callable = module == NULL ? NULL : PyObject_GetAttrString(module, function);
    PyObject *result = callable == NULL ? NULL : PyObject_Call(callable, args, NULL);

    Py_XDECREF(callable);
    Py_XDECREF(module);
    Py_XDECREF(args);
    return result;
}

PyObject *shmc_pyview_schema(PyObject *type, PyObject *args)
{
    PyObject *first = PyTuple_Pack(1, type);
    PyObject *all = first == NULL ? NULL : PySequence_Concat(first, args);

    Py_XDECREF(first);
    return call("shmcache.models.schema", "core_schema", all);
}

PyObject *shmc_pyview_serializer(PyObject *self, void *Py_UNUSED(unused))
{
    return call("shmcache.models.schema", "serializer", Py_BuildValue("(O)", Py_TYPE(self)));
}

PyObject *shmc_pyview_pretty(PyObject *self, PyObject *args)
{
    PyObject *printer, *cycle;

    if (!PyArg_ParseTuple(args, "OO:_repr_pretty_", &printer, &cycle))
        return NULL;
    return call("shmcache.prompt", "pretty", Py_BuildValue("(OOO)", self, printer, cycle));
}

PyObject *shmc_pyview_html(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return call("shmcache.prompt", "html", Py_BuildValue("(O)", self));
}

PyObject *shmc_pyview_dir(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return call("shmcache.prompt", "names", Py_BuildValue("(O)", self));
}

/*
 * isinstance(view, dict) and isinstance(list_view, list) are true, as for a proxy: code in Python
 * that sorts values by their class (FastAPI's encoder, Django REST framework's, the official
 * client's) then takes a view for what it is. Without it such code goes on to guess, and some
 * guess that an array of objects with two members is an array of pairs. Code in C looks at the
 * type itself, and does not mistake a view for the memory layout of a dict.
 */
static PyObject *shown_as[2]; /* set once (HOT4) */

PyObject *shmc_pyview_class(PyObject *self, void *Py_UNUSED(unused))
{
    const bool list = Py_TYPE(self)->tp_as_sequence->sq_item != NULL;
    PyObject *const shown = Py_TYPE(self) == &shmc_pyview_type   ? shown_as[0]
                            : Py_TYPE(self) == &shmc_pylist_type ? shown_as[1]
                                                                 : NULL;

    return Py_NewRef(shown != NULL ? shown : (PyObject *)(list ? &PyList_Type : &PyDict_Type));
}

/* class View(dict) with the view's own _repr_pretty_, for IPython, which looks at __class__. */
static PyObject *shown_class(PyTypeObject *type, PyTypeObject *base, const char *name)
{
    PyObject *pretty = PyObject_GetAttrString((PyObject *)type, "_repr_pretty_");
    PyObject *made = pretty == NULL
                         ? NULL
                         : PyObject_CallFunction((PyObject *)&PyType_Type, "s(O){s:O,s:s,s:()}", name,
                                                 base, "_repr_pretty_", pretty, "__module__",
                                                 "shmcache", "__slots__");

    Py_XDECREF(pretty);
    return made;
}

int shmc_pyprompt_init(void)
{
    shown_as[0] = shown_class(&shmc_pyview_type, &PyDict_Type, "View");
    shown_as[1] = shown_class(&shmc_pylist_type, &PyList_Type, "ListView");
    return shown_as[0] == NULL || shown_as[1] == NULL ? -1 : 0;
}

/* type(view)(...), which copies containers in general, makes plain ones. */
PyObject *shmc_pyview_plain_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const bool list = type->tp_as_sequence->sq_item != NULL;

    return PyObject_Call((PyObject *)(list ? &PyList_Type : &PyDict_Type), args, kwargs);
}

/* ---- <Pod prod/web-0 rv=7> ---------------------------------------------------------------- */

#define NAME_MAX_LENGTH 320 /* names of objects are shorter, and a repr is bounded */

/* A short str or None for everything else. NULL with an exception set. */
static PyObject *text_of(PyObject *view, const char *key)
{
    PyObject *value = PyObject_CallMethod(view, "get", "s", key);

    if (value != NULL &&
        (!PyUnicode_Check(value) || PyUnicode_GET_LENGTH(value) > NAME_MAX_LENGTH))
        Py_SETREF(value, Py_NewRef(Py_None));
    return value;
}

static PyObject *put_together(PyObject *kind, PyObject *space, PyObject *name, PyObject *version)
{
    PyObject *text = space == Py_None ? PyUnicode_FromFormat("<%U %U", kind, name)
                                      : PyUnicode_FromFormat("<%U %U/%U", kind, space, name);

    if (version != Py_None)
        PyUnicode_AppendAndDel(&text, PyUnicode_FromFormat(" rv=%U", version));
    PyUnicode_AppendAndDel(&text, PyUnicode_FromString(">"));
    return text;
}

PyObject *shmc_pyview_name(PyObject *self)
{
    PyObject *kind = text_of(self, "kind");
    PyObject *metadata = kind == NULL ? NULL : PyObject_CallMethod(self, "get", "s", "metadata");
    PyObject *result = NULL;

    if (metadata != NULL && (kind == Py_None || Py_TYPE(metadata) != &shmc_pyview_type)) {
        result = Py_NewRef(Py_None);
    } else if (metadata != NULL) {
        PyObject *name = text_of(metadata, "name");
        PyObject *space = name == NULL ? NULL : text_of(metadata, "namespace");
        PyObject *version = space == NULL ? NULL : text_of(metadata, "resourceVersion");

        if (version != NULL)
            result = name == Py_None ? Py_NewRef(Py_None) : put_together(kind, space, name, version);
        Py_XDECREF(name);
        Py_XDECREF(space);
        Py_XDECREF(version);
    }
    Py_XDECREF(metadata);
    Py_XDECREF(kind);
    return result;
}
