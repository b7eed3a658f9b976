import{g as e}from"./chunk-RLH3V6A7.js";function a(){return e("main",{class:"page",children:e("header",{class:"page-head",children:e("h1",{children:"Access"})})})}export{a as Access};
