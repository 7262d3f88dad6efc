// Starts the application.
import { mount } from 'svelte';
import App from './App.svelte';
import './app.css';
import { router } from './state/router.svelte';

router.start();
mount(App, { target: document.getElementById('app')! });
