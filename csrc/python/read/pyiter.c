/*
 * pyiter.c - iterators over one pinned root: keys, values or items in order.
 *
 * The root is held until the end is reached, so an iterator sees one state; if it is kept for very
 * long under a busy writer it ends in StaleObjectError, as every snapshot does. It uses the memory
 * of one chunk, however many objects there are.
 */
#include "python/read/pyread.h"

struct iterator {
    PyObject_HEAD
    shmc_pyroot *root; /* NULL: at the end */
    struct shmc_pybounds bounds;
    struct shmc_pyscan scan;
};

PyObject *shmc_pyiter_new(shmc_pyroot *root, const struct shmc_pyrecord *record,
                          enum shmc_want want)
{
    struct iterator *self = PyObject_New(struct iterator, &shmc_pyiter_type);

    if (self == NULL)
        return NULL;
    self->root = (shmc_pyroot *)Py_NewRef(root);
    shmc_pybounds_init(&self->bounds);
    self->bounds.want = want;
    if (shmc_pyscan_open(&self->scan, root, record, &self->bounds) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void finish(struct iterator *self)
{
    shmc_pyscan_close(&self->scan);
    shmc_pybounds_free(&self->bounds);
    if (self->root != NULL) {
        shmc_pyroot *root = self->root;
        self->root = NULL;
        shmc_pyroot_drop(root);
    }
}

static void iter_dealloc(PyObject *object)
{
    finish((struct iterator *)object);
    PyObject_Free(object);
}

static PyObject *iter_next(PyObject *object)
{
    struct iterator *self = (struct iterator *)object;

    if (self->root == NULL)
        return NULL;
    shmc_pyroot *root = (shmc_pyroot *)Py_NewRef(self->root); /* another thread may finish */
    PyObject *result = shmc_pyscan_next(&self->scan);
    if (result == NULL)
        finish(self);
    shmc_pyroot_drop(root);
    return result;
}

static PyObject *iter_hint(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const struct iterator *self = (struct iterator *)object;
    uint64_t left = 0;

    if (self->root != NULL)
        left = self->scan.left + (self->scan.count - self->scan.position);
    return PyLong_FromUnsignedLongLong(left);
}

static PyMethodDef iter_methods[] = {
    {"__length_hint__", iter_hint, METH_NOARGS, "How many are left."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject shmc_pyiter_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Iterator",
    .tp_doc = PyDoc_STR("Keys, values or items of one root, in the order of keys."),
    .tp_basicsize = sizeof(struct iterator),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = iter_dealloc,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = iter_next,
    .tp_methods = iter_methods,
};
