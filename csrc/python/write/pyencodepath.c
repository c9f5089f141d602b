/*
 * pyencodepath.c - errors about values that cannot be stored, with the path to the value.
 *
 * The encoder notes the path on its way out, innermost step first; the text of the error shows it
 * from outside in. Texts of keys are made by the code of built-in types alone (ENCODE1).
 */
#include "python/write/pyencode.h"

int shmc_encode_failed(enum shmc_status status, const char *what)
{
    shmc_hot_raise(status, what);
    return -1;
}

int shmc_encode_unsupported(PyObject *object, const char *why)
{
    PyErr_Format(shmc_hot_errors.unsupported, "%s (type %.100s)", why, Py_TYPE(object)->tp_name);
    return -1;
}

/* A key as text, by the code of built-in types alone (ENCODE1). */
static PyObject *key_text(PyObject *key)
{
    if (!PyUnicode_Check(key))
        return PyUnicode_FromFormat("[<%.100s>]", Py_TYPE(key)->tp_name);
    PyObject *quoted = PyUnicode_Type.tp_repr(key);
    PyObject *text = quoted == NULL ? NULL : PyUnicode_FromFormat("[%U]", quoted);
    Py_XDECREF(quoted);
    return text;
}

int shmc_encoder_trail(struct shmc_encoder *encoder, PyObject *step, Py_ssize_t index)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    if (encoder->trail == NULL)
        encoder->trail = PyList_New(0);
    if (encoder->trail != NULL && PyList_GET_SIZE(encoder->trail) < 1100) {
        PyObject *text =
            step != NULL ? key_text(step) : PyUnicode_FromFormat("[%zd]", index);
        if (text != NULL) {
            PyList_Append(encoder->trail, text);
            Py_DECREF(text);
        }
    }
    PyErr_Restore(type, value, traceback); /* the first error is the one that counts */
    return -1;
}

static PyObject *trail_text(PyObject *list)
{
    PyObject *empty = PyUnicode_FromString("");
    PyObject *text = NULL;

    if (empty != NULL && PyList_Reverse(list) == 0) {
        if (PyList_GET_SIZE(list) > 16 && /* a deep path: both ends are enough */
            PyList_SetSlice(list, 8, PyList_GET_SIZE(list) - 8, NULL) == 0) {
            PyObject *dots = PyUnicode_FromString("[...]");
            if (dots != NULL)
                PyList_Insert(list, 8, dots);
            Py_XDECREF(dots);
        }
        text = PyUnicode_Join(empty, list);
    }
    Py_XDECREF(empty);
    return text;
}

void shmc_encoder_explain(struct shmc_encoder *encoder)
{
    PyObject *type, *value, *traceback, *path = NULL, *text = NULL;
    PyObject *list = encoder->trail;

    encoder->trail = NULL;
    if (list == NULL)
        return;
    if (PyErr_ExceptionMatches(shmc_hot_errors.unsupported) ||
        PyErr_ExceptionMatches(shmc_hot_errors.limit)) {
        PyErr_Fetch(&type, &value, &traceback);
        path = trail_text(list);
        if (path != NULL)
            text = PyUnicode_FromFormat("at %U: %S", path, value);
        if (text != NULL)
            PyErr_SetObject(type, text);
        else
            PyErr_Restore(Py_XNewRef(type), Py_XNewRef(value), Py_XNewRef(traceback));
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
    Py_XDECREF(path);
    Py_XDECREF(text);
    Py_DECREF(list);
}
