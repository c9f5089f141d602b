/*
 * pypage.c - a page of a list as JSON text: the objects of a walk, one after another.
 *
 *   walk (pyscan.c) --> entry --> its object's word --> text (pyjson.c) --> one bytes object
 *
 * The text is the part between the brackets of a list. A page ends when it is long enough, so that
 * a list of any size is sent by as many calls as it takes, all on one root: the next call continues
 * after the last key. No Python object is made for an object on the way.
 *
 * A form is (keep, first, lead, enough) or (keep, first, lead, enough, lean): which members of each
 * object are written ("all"; all but kind and apiVersion: "untyped"; nothing else: "metadata"), JSON
 * text in front of them (members, each with its comma), text in front of the page, after how many
 * bytes the page ends, and whether metadata.managedFields are left out. A comma at the end of the
 * lead is dropped if no object follows it.
 */
#include "python/read/pyread.h"

struct page {
    struct shmc_pyscan scan;
    uint64_t count;
    shmc_word key; /* of the last object; SHMC_NOTHING before the first */
};

int shmc_pyform_read(PyObject *object, void *to)
{
    static const char *const names[] = {"all", "untyped", "metadata"};
    struct shmc_pyform *form = to;
    const char *keep;
    Py_ssize_t length, enough, lead_length;
    int lean = 0;

    if (!PyTuple_Check(object) ||
        !PyArg_ParseTuple(object, "sy#y#n|p:form", &keep, &form->first, &length, &form->lead,
                          &lead_length, &enough, &lean)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a form must be (keep, first, lead, enough[, lean])");
        return 0;
    }
    form->first_length = (size_t)length;
    form->lead_length = (size_t)lead_length;
    form->enough = enough > 0 ? (uint64_t)enough : 1;
    form->lean = lean != 0;
    for (unsigned i = 0; i < 3; i++) {
        form->keep = (enum shmc_keep)i;
        if (strcmp(keep, names[i]) == 0)
            return 1;
    }
    PyErr_SetString(PyExc_ValueError, "keep must be 'all', 'untyped' or 'metadata'");
    return 0;
}

static int next_object(void *from, shmc_word *word)
{
    struct page *page = from;
    struct shmc_entry entry;
    const bool indexed = page->scan.bounds->index >= 0;

    const int more = shmc_pyscan_step(&page->scan, &entry);
    if (more <= 0)
        return more;
    *word = entry.words[indexed ? 2 : 1];
    page->key = entry.words[indexed ? 1 : 0];
    page->count++;
    if (shmc_is_object(*word))
        return 1;
    shmc_pyroot_unreadable(page->scan.root);
    return -1;
}

static PyObject *result_of(struct page *page, PyObject *text)
{
    const struct shmc_pyscan *scan = &page->scan;
    const bool more = scan->position < scan->count || !(scan->ended || scan->wanted == 0);
    PyObject *key = Py_None;

    if (page->key != SHMC_NOTHING)
        key = shmc_pystring(scan->root, page->key);
    else
        Py_INCREF(key);
    if (key == NULL)
        return NULL;
    return Py_BuildValue("(OKNO)", text, (unsigned long long)page->count, key,
                         more ? Py_True : Py_False);
}

PyObject *shmc_pyscan_json(shmc_pyroot *root, const struct shmc_pyrecord *record,
                           const struct shmc_pybounds *bounds)
{
    struct page page = {.key = SHMC_NOTHING};
    PyObject *result = NULL, *text = NULL;

    if (bounds->want == SHMC_WANT_KEYS) {
        PyErr_SetString(PyExc_ValueError, "a page shows objects, not keys");
        return NULL;
    }
    if (shmc_pyscan_open(&page.scan, root, record, bounds) == 0)
        text = shmc_pyjson_many(root, &bounds->form, next_object, &page);
    if (text != NULL)
        result = result_of(&page, text);
    Py_XDECREF(text);
    shmc_pyscan_close(&page.scan);
    return result;
}
